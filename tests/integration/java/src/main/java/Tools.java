import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after another, without a JVM for each: a line of standard input is a main class
 * and its arguments, separated by tabs. What a tool prints is followed by a line with a NUL and its exit status.
 */
public final class Tools {
    private static final class Exited extends RuntimeException {
        final int status;

        Exited(int status) {
            super("exit " + status, null, false, false);
            this.status = status;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Exit.Procedure exit = (status, message) -> {
            if (message != null)
                System.out.println(message);
            throw new Exited(status);
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            int status = run(line.split("\t", -1));
            System.out.println("\0" + status);
            System.out.flush();
        }
    }

    private static int run(String[] words) throws Exception {
        String[] arguments = Arrays.copyOfRange(words, 1, words.length);
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof Exited exited)
                return exited.status;
            error.getCause().printStackTrace(System.out);
            return 1;
        }
    }
}
