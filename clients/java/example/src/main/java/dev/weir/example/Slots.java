package dev.weir.example;

import dev.weir.client.Check;
import dev.weir.client.WeirClient;
import java.time.Duration;

/** Work of which only so much runs at the same time: a slot is held around it, and extended while it runs. */
public class Slots {
    public static void main(String[] arguments) {
        var address = System.getenv().getOrDefault("WEIR_ADDR", "127.0.0.1:8081");
        try (var weir = WeirClient.builder(address).deadline(Duration.ofSeconds(10)).build()) {
            var exports = Check.of("exports", "alex");
            try (var slot = weir.slot(exports)) {
                System.out.println(slot.isHeld() ? "exporting" : "no export");
                try (var another = weir.slot(exports)) {
                    System.out.println(another.isHeld() ? "two at the same time" : "another one has to wait");
                }
            }
            try (var slot = weir.slot(exports)) {
                System.out.println(slot.isHeld() ? "exporting again" : "the slot was not given back");
            }
        }
    }
}
