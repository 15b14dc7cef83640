package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Each Java block of {@code docs/cookbook-code.md} runs with the cookbook's policies, and prints the text below it. */
class CookbookTest {
    private static final Path DOCS = Path.of("../../docs");
    private static final int RECIPES = 14;

    @TempDir
    private Path directory;

    private static List<String> sections(String page) throws IOException {
        return Arrays.asList(Files.readString(DOCS.resolve(page)).split("\n## "));
    }

    private static List<String> blocks(String text, String language) {
        return Pattern.compile("^```" + language + "\n(.*?)^```", Pattern.DOTALL | Pattern.MULTILINE)
                .matcher(text)
                .results()
                .map((MatchResult block) -> block.group(1))
                .toList();
    }

    @Test
    void eachRecipePrintsWhatThePageSays() throws Exception {
        var limits = Files.createDirectory(directory.resolve("limits"));
        var cookbook = sections("cookbook.md");
        var policies = blocks(String.join("\n", cookbook.subList(1, cookbook.size())), "yaml");
        for (var i = 0; i < policies.size(); i++) {
            Files.writeString(limits.resolve(i + ".yaml"), policies.get(i));
        }
        var page = sections("cookbook-code.md");
        var recipes = page.subList(1, page.size());
        assertEquals(RECIPES, recipes.size());
        try (var server = Weir.serve(limits);
                var classes = compiled(program(blocks(page.get(0), "java").get(0), recipes, server.address()))) {
            var program = classes.loadClass("Cookbook");
            for (var i = 0; i < RECIPES; i++) {
                var printed = printed(program, "recipe" + i);
                assertEquals(blocks(recipes.get(i), "text").get(0), printed, recipes.get(i).lines().findFirst().orElseThrow());
            }
        }
    }

    /** Returns a program that runs each recipe, in a separate method, after the introduction. */
    private static String program(String introduction, List<String> recipes, String address) {
        var imports = introduction.lines().filter(line -> line.startsWith("import ")).collect(Collectors.joining("\n"));
        var patient = "WeirClient.builder(\"%s\").deadline(Duration.ofMinutes(1)).build()".formatted(address);
        var start = introduction.lines()
                .filter(line -> !line.startsWith("import "))
                .collect(Collectors.joining("\n"))
                .replace("WeirClient.connect(\"127.0.0.1:8081\")", patient);
        var methods = IntStream.range(0, recipes.size())
                .mapToObj(i -> "public static void recipe%d() {\n%s\n%s\nweir.close();\n}\n"
                        .formatted(i, start, blocks(recipes.get(i), "java").get(0)))
                .collect(Collectors.joining());
        return "%s\npublic class Cookbook {\n%s}\n".formatted(imports, methods);
    }

    private URLClassLoader compiled(String source) throws IOException {
        var file = Files.writeString(directory.resolve("Cookbook.java"), source);
        var errors = new ByteArrayOutputStream();
        var failed = ToolProvider.getSystemJavaCompiler()
                .run(null, null, errors, "-cp", System.getProperty("java.class.path"), "-d", directory.toString(), file.toString());
        assertTrue(failed == 0, () -> errors + "\n" + source);
        return new URLClassLoader(new URL[] {directory.toUri().toURL()}, CookbookTest.class.getClassLoader());
    }

    private static String printed(Class<?> program, String method) throws ReflectiveOperationException {
        var printed = new ByteArrayOutputStream();
        var console = System.out;
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        try {
            program.getMethod(method).invoke(null);
        } finally {
            System.setOut(console);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }
}
