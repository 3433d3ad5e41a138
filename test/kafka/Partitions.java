import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

/** Prints, for each line "number-of-partitions key-in-hex", the partition that Kafka's Java producer puts the key into. */
class Partitions {
  public static void main(String[] args) {
    StringBuilder out = new StringBuilder();
    try (Scanner in = new Scanner(System.in)) {
      while (in.hasNextLine()) {
        String[] words = in.nextLine().split(" ", -1);
        byte[] key = HexFormat.of().parseHex(words[1]);
        out.append(BuiltInPartitioner.partitionForKey(key, Integer.parseInt(words[0]))).append('\n');
      }
    }
    System.out.print(out);
  }
}
