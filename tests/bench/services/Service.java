/* A service that is slow to start, for the section warm-start of scripts/bench: Service PORT CLASSES. It loads so many classes,
 * Part0 and further (services.py writes them), and has each do its work until the code is compiled. Only then it listens. */
import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.function.LongUnaryOperator;

public class Service {
    static final int WARM_UP = 20000;
    static final List<LongUnaryOperator> PARTS = new ArrayList<>();

    static long worked(long seed) {
        for (LongUnaryOperator part : PARTS) {
            seed = part.applyAsLong(seed);
        }
        return seed;
    }

    public static void main(String[] words) throws Exception {
        for (int number = 0; number < Integer.parseInt(words[1]); number++) {
            PARTS.add((LongUnaryOperator) Class.forName("Part" + number).getDeclaredConstructor().newInstance());
        }
        long seed = 0;
        for (int round = 0; round < WARM_UP; round++) {
            seed = worked(seed);
        }
        HttpServer server =
                HttpServer.create(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), Integer.parseInt(words[0])), 0);
        server.createContext("/", exchange -> {
            byte[] body = ("worked " + worked(1) + "\n").getBytes();
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}
