// Metrics JMX-URL... -- PATTERN|ATTRIBUTE...: a line a URL, in it a sum over all matching beans for each pattern.

import java.util.Arrays;
import java.util.List;
import java.util.StringJoiner;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

public final class Metrics {
    public static void main(String[] arguments) throws Exception {
        List<String> all = Arrays.asList(arguments);
        int middle = all.indexOf("--");
        for (String url : all.subList(0, middle)) {
            try (var connector = JMXConnectorFactory.connect(new JMXServiceURL(url))) {
                var sums = new StringJoiner(" ");
                for (String asked : all.subList(middle + 1, all.size())) {
                    int bar = asked.lastIndexOf('|');
                    sums.add(Long.toString(sum(connector.getMBeanServerConnection(), asked.substring(0, bar), asked.substring(bar + 1))));
                }
                System.out.println(sums);
            }
        }
    }

    private static long sum(MBeanServerConnection beans, String pattern, String attribute) throws Exception {
        long sum = 0;
        for (ObjectName name : beans.queryNames(new ObjectName(pattern), null)) {
            sum += ((Number) beans.getAttribute(name, attribute)).longValue();
        }
        return sum;
    }
}
