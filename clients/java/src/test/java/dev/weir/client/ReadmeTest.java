package dev.weir.client;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** The README shows only code of the examples, which the test scenario runs, or of the tests. */
class ReadmeTest {
    private static final Pattern BLOCK = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);

    /** Removes the indentation. */
    private static String lines(String code) {
        return String.join("\n", code.lines().map(String::strip).filter(line -> !line.isEmpty()).toList());
    }

    private static List<String> sources() throws IOException {
        try (var example = Files.walk(Path.of("example/src")); var tests = Files.walk(Path.of("src/test"))) {
            return Stream.concat(example, tests)
                    .filter(path -> path.toString().endsWith(".java"))
                    .map(ReadmeTest::read)
                    .map(ReadmeTest::lines)
                    .toList();
        }
    }

    private static String read(Path path) {
        try {
            return Files.readString(path);
        } catch (IOException unreadable) {
            throw new IllegalStateException(unreadable);
        }
    }

    @Test
    void eachBlockOfCodeRuns() throws IOException {
        var sources = sources();
        var blocks = BLOCK.matcher(read(Path.of("README.md"))).results().map(found -> lines(found.group(1))).toList();
        assertFalse(blocks.isEmpty());
        for (var block : blocks) {
            assertTrue(sources.stream().anyMatch(source -> source.contains(block)), () -> "nothing runs this:\n" + block);
        }
    }
}
