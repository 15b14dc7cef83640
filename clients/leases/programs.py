"""The program `examples/leased` of each package: its build, and its output."""

import os
import subprocess
import sys

ROOT = os.path.realpath(f"{os.path.dirname(__file__)}/../..")
CLIENTS = f"{ROOT}/clients"


def build(language, directory, profile):
    """Builds the program of a language: its command, and where it runs."""

    def run(*command, cwd=ROOT):
        subprocess.run(command, cwd=cwd, check=True, stdout=sys.stderr)

    if language == "rust":
        run("cargo", "build", "--quiet", "--profile", profile, "-p", "weir-client", "--example", "leased")
        target = os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"))
        return [f"{target}/{profile.replace('dev', 'debug')}/examples/leased"], ROOT
    if language == "go":
        run("go", "build", "-o", f"{directory}/leased-go", "./examples/leased", cwd=f"{CLIENTS}/go")
        return [f"{directory}/leased-go"], ROOT
    if language == "node":
        home = f"{CLIENTS}/node"
        run("npm", "ci", "--silent", "--no-audit", "--no-fund", cwd=home)
        run("npm", "run", "--silent", "build", cwd=home)
        # Inside of the package, so that the program finds it by its name.
        options = "--rootDir examples --outDir dist/leased --module nodenext --target es2022 --types node --skipLibCheck"
        options += " --lib es2023,esnext.disposable,es2024.string"
        run("npx", "tsc", "--ignoreConfig", "examples/leased.ts", *options.split(), cwd=home)
        return ["node", "dist/leased/leased.js"], home
    if language == "python":
        run(sys.executable, "-m", "venv", f"{directory}/venv")
        run(f"{directory}/venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", f"{CLIENTS}/python")
        return [f"{directory}/venv/bin/python", f"{CLIENTS}/python/examples/leased.py"], ROOT
    if language == "java":
        run("mvn", "--quiet", "--batch-mode", "install", "-DskipTests", cwd=f"{CLIENTS}/java")
        run("mvn", "--quiet", "--batch-mode", "compile", cwd=f"{CLIENTS}/java/example")
        return ["java", "-cp", "target/classes:target/lib/*", "dev.weir.example.Leased"], f"{CLIENTS}/java/example"
    raise SystemExit(f"{language}: rust, go, java, node or python")


class Program:
    """A program of a language, started again and again."""

    def __init__(self, language, directory, profile):
        self.language, self.directory = language, directory
        self.command, self.cwd = build(language, directory, profile)
        self.outputs = []

    def start(self, *arguments):
        self.outputs.append(f"{self.directory}/{self.language}-{len(self.outputs)}.out")
        with open(self.outputs[-1], "wb") as output:
            command = [*self.command, *arguments]
            self.process = subprocess.Popen(command, cwd=self.cwd, stdout=output)

    def admitted(self):
        """The times before and after each check that was allowed, in microseconds; fails if there was an error, which an outage is not."""
        units = []
        for output in self.outputs:
            with open(output) as file:
                lines = file.read().split("\n")
            # The last one is empty, or was cut when the program was killed.
            for line in lines[:-1]:
                assert not line.startswith("error"), f"{self.language}: {line}"
                before, after = line.split()
                units.append((int(before), int(after)))
        return units
