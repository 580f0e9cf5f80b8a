import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.Proxy;
import java.net.URL;

/** Fetches a URL without any proxy; prints the status and the body. */
public class Fetch {
    public static void main(String[] arguments) throws Exception {
        URL url = new URL(arguments[0]);
        HttpURLConnection asked = (HttpURLConnection) url.openConnection(Proxy.NO_PROXY);
        asked.setConnectTimeout(20000);
        asked.setReadTimeout(20000);
        System.out.println(asked.getResponseCode());
        try (InputStream body = asked.getInputStream()) {
            System.out.write(body.readAllBytes());
        }
        System.out.flush();
    }
}
