package dev.weir.example;

import dev.weir.client.Check;
import dev.weir.client.Guard;
import dev.weir.client.OnFailure;
import dev.weir.client.Tls;
import dev.weir.client.WeirClient;
import dev.weir.client.servlet.GuardFilter;
import dev.weir.client.servlet.RequestKeys;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.web.server.context.WebServerInitializedEvent;
import org.springframework.context.annotation.Bean;
import org.springframework.context.event.EventListener;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RestController;

/** A guarded Spring Boot service: each user has limits, and so has each route of a user. */
@SpringBootApplication
@RestController
public class Service {
    public static void main(String[] arguments) {
        var application = new SpringApplication(Service.class);
        var port = System.getenv().getOrDefault("PORT", "8000");
        application.setDefaultProperties(Map.of("server.address", "127.0.0.1", "server.port", port));
        application.run(arguments);
    }

    @Bean
    WeirClient weir() {
        var environment = System.getenv();
        var weir = WeirClient.builder(environment.getOrDefault("WEIR_ADDR", "127.0.0.1:8081"))
                .deadline(Duration.ofMillis(Long.parseLong(environment.getOrDefault("WEIR_DEADLINE_MS", "50"))));
        Optional.ofNullable(environment.get("WEIR_TOKEN")).ifPresent(weir::token);
        Optional.ofNullable(environment.get("WEIR_TLS_CA")).map(Path::of).map(Tls::trusting).ifPresent(weir::tls);
        return weir.build();
    }

    @Bean
    GuardFilter guardFilter(WeirClient weir) {
        return new GuardFilter(Guard.failingOpen(weir), request -> {
            // Take the user from your authentication (RequestKeys.principal), never from a header that callers set.
            var user = RequestKeys.header(request, "X-User");
            var route = request.getServletPath().substring(1);
            var check = Check.of("user", user, route);
            return switch (route) {
                case "health" -> Optional.empty();
                // To try passwords without end would be worse than an outage.
                case "login" -> Optional.of(check.withOnFailure(OnFailure.DENY));
                default -> Optional.of(check);
            };
        });
    }

    @GetMapping("/{route}")
    String welcome(@PathVariable String route) {
        return "welcome to " + route;
    }

    @EventListener
    void serving(WebServerInitializedEvent event) {
        System.out.println("serving on http://127.0.0.1:" + event.getWebServer().getPort());
    }
}
