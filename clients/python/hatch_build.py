"""Generates the protobuf messages when the package is built from the repository."""

from importlib import resources
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = ["weir/v1/weir.proto", "weir/client/status.proto"]


class GenerateMessages(BuildHookInterface[Any]):
    """Runs protoc. A source distribution contains the generated messages, so it needs none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before each build."""
        root = Path(self.root)
        shared = root.parent.parent / "proto"
        if not (shared / SOURCES[0]).exists():
            return
        from grpc_tools import protoc  # noqa: PLC0415 - of the build's requirements

        google = resources.files("grpc_tools") / "_proto"
        out = root / "src"
        arguments = [f"-I{shared}", f"-I{root / 'proto'}", f"-I{google}", f"--python_out={out}", f"--pyi_out={out}"]
        if protoc.main(["protoc", *arguments, *SOURCES]) != 0:
            raise RuntimeError(f"protoc failed on {SOURCES}")
        for name in ("v1", "client"):
            (out / "weir" / name / "__init__.py").write_text(f'"""Generated from weir/{name}."""\n')
