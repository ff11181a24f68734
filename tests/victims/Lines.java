import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Six threads under pressure of garbage collection: each step depends on all before it. */
public class Lines {
    private static final int WORKERS = 6;
    private static final int KEPT = 200;

    /** A lane's state: a generator, and a window of objects that keeps the collector busy. */
    private static final class Lane {
        private long state;
        private final ArrayDeque<int[]> window = new ArrayDeque<>();

        Lane(int number) {
            state = 0x9e3779b97f4a7c15L * (number + 1);
        }

        long step() {
            for (int i = 0; i < 60; i++) {
                int[] block = new int[2000];
                for (int j = 0; j < block.length; j++) {
                    state ^= state << 13;
                    state ^= state >>> 7;
                    state ^= state << 17;
                    block[j] = (int) state;
                }
                window.add(block);
                if (window.size() > KEPT) {
                    window.remove();
                }
            }
            long sum = 0;
            for (int[] block : window) {
                sum = sum * 31 + block[(int) (Math.abs(state) % block.length)];
            }
            return sum;
        }
    }

    public static void main(String[] arguments) throws Exception {
        int steps = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 80;
        // As in victim.h: where a test wants the program to wait, and for which file.
        int waitsAt = Integer.parseInt(System.getenv().getOrDefault("CKPT_VICTIM_WAITS_AT", "0"));
        Path waitsFor = Path.of(System.getenv().getOrDefault("CKPT_VICTIM_WAITS_FOR", "/"));
        ExecutorService pool = Executors.newFixedThreadPool(WORKERS);
        List<Lane> lanes = new ArrayList<>();
        for (int i = 0; i < WORKERS; i++) {
            lanes.add(new Lane(i));
        }
        System.out.println("ready");
        for (int step = 0; step < steps; step++) {
            List<Future<Long>> results = new ArrayList<>();
            for (Lane lane : lanes) {
                results.add(pool.submit(lane::step));
            }
            long sum = 0;
            for (Future<Long> result : results) {
                sum = sum * 1000003 + result.get();
            }
            System.out.println("step " + step + " " + Long.toHexString(sum));
            while (step + 1 == waitsAt && !Files.exists(waitsFor)) {
                Thread.sleep(1);
            }
            Thread.sleep(10);
        }
        pool.shutdown();
        System.out.println("verified");
        System.exit(13);
    }
}
