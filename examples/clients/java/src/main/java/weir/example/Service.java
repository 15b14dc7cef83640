package weir.example;

import jakarta.servlet.DispatcherType;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.EnumSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import org.eclipse.jetty.ee10.servlet.FilterHolder;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.server.Server;

/** A guarded service: each user has limits, and so has each route of a user. */
public class Service extends HttpServlet {
    public static void main(String[] arguments) throws Exception {
        var guard = new Guard(new WeirClient(System.getenv()), Service::key, Set.of("login"));
        var routes = new ServletContextHandler("/");
        routes.addFilter(new FilterHolder(guard), "/*", EnumSet.of(DispatcherType.REQUEST));
        for (var route : List.of("trade", "login", "health")) {
            routes.addServlet(Service.class, "/" + route);
        }
        var port = Integer.parseInt(System.getenv().getOrDefault("PORT", "8000"));
        var server = new Server(new InetSocketAddress("127.0.0.1", port));
        server.setHandler(routes);
        server.start();
        System.out.println("serving on http://127.0.0.1:" + server.getURI().getPort());
    }

    /**
     * Whose request this is, and for what. Take the user from what your authentication has found, never from a header that anybody
     * may set, as here.
     */
    private static List<String> key(HttpServletRequest request) {
        var user = Objects.requireNonNullElse(request.getHeader("X-User"), "anonymous");
        var route = request.getServletPath().replaceFirst("^/", "");
        return route.equals("health") ? List.of() : List.of("user", user, route);
    }

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
        response.getWriter().println("welcome to " + request.getServletPath());
    }
}
