import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Runs Kafka's command line tools one after another, without a JVM for each: a line of standard input is a main class
 * and its arguments, separated by tabs. What a tool prints is followed by a line "NUL exit status N".
 */
public final class Tools {
    /** The first that a tool gave; some catch what stands for the exit, and give another. */
    private static Integer exitStatus;

    private static final class Exited extends RuntimeException {
        Exited() {
            super("exit", null, false, false);
        }
    }

    public static void main(String[] arguments) throws Exception {
        raiseInsteadOfExit("setExitProcedure");
        raiseInsteadOfExit("setHaltProcedure");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            int status = run(line.split("\t", -1));
            System.out.println("\0exit status " + status);
            System.out.flush();
        }
    }

    /** By name: 4.4 has the class in another package. */
    private static Class<?> exitClass() throws ClassNotFoundException {
        try {
            return Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException older) {
            return Class.forName("org.apache.kafka.common.utils.Exit");
        }
    }

    private static void raiseInsteadOfExit(String setter) throws ReflectiveOperationException {
        Class<?> exit = exitClass();
        Class<?> procedure = Class.forName(exit.getName() + "$Procedure");
        InvocationHandler raise = (self, method, statusAndMessage) -> {
            if (statusAndMessage[1] != null)
                System.out.println(statusAndMessage[1]);
            if (exitStatus == null)
                exitStatus = (int) statusAndMessage[0];
            throw new Exited();
        };
        Object made = Proxy.newProxyInstance(procedure.getClassLoader(), new Class<?>[] {procedure}, raise);
        exit.getMethod(setter, procedure).invoke(null, made);
    }

    private static int run(String[] words) throws Exception {
        exitStatus = null;
        String[] arguments = Arrays.copyOfRange(words, 1, words.length);
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return exitStatus == null ? 0 : exitStatus;
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof Exited)
                return exitStatus;
            error.getCause().printStackTrace(System.out);
            return 1;
        }
    }
}
