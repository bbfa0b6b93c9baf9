import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's own clients on either broker: `feed` makes two topics and fills one of them, `copy` copies it to the
 * other one, exactly once, and ends when it has reached the end. It copies no more than `records`: there it stays,
 * in the middle of a transaction, until it is killed.
 *
 * <p>`java CopyLoop.java feed|copy bootstrap.servers input output records`
 */
public class CopyLoop {
  public static void main(String[] args) throws Exception {
    String bootstrap = args[1], input = args[2], output = args[3];
    int records = Integer.parseInt(args[4]);
    if (args[0].equals("feed")) {
      feed(bootstrap, input, output, records);
    } else {
      copy(bootstrap, input, output, records);
    }
  }

  static KafkaProducer<String, String> producer(String bootstrap, String id) {
    Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "transactional.id", id);
    return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
  }

  /** Numbers in transactions of 500; between them transactions that abort. */
  static void feed(String bootstrap, String input, String output, int records) throws Exception {
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
      short replicas = 1;
      admin
          .createTopics(List.of(new NewTopic(input, 3, replicas), new NewTopic(output, 3, replicas)))
          .all()
          .get();
    }
    try (KafkaProducer<String, String> producer = producer(bootstrap, input + "-feed")) {
      producer.initTransactions();
      for (int from = 0; from < records; from += 500) {
        producer.beginTransaction();
        for (int number = from; number < Math.min(from + 500, records); number++) {
          producer.send(new ProducerRecord<>(input, "k" + number, "" + number));
        }
        producer.commitTransaction();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(input, "k" + from, "aborted")).get();
        producer.abortTransaction();
      }
    }
  }

  static void copy(String bootstrap, String input, String output, int most) throws Exception {
    Map<String, Object> config = new HashMap<>();
    config.put("bootstrap.servers", bootstrap);
    config.put("group.id", input + "-copiers");
    // The next process after a SIGKILL takes its place at once.
    config.put("group.instance.id", "copier");
    config.put("isolation.level", "read_committed");
    config.put("enable.auto.commit", "false");
    config.put("auto.offset.reset", "earliest");
    config.put("max.poll.records", "100");
    try (KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        KafkaProducer<String, String> producer = producer(bootstrap, input + "-copy")) {
      producer.initTransactions();
      consumer.subscribe(List.of(input));
      int copied = 0;
      while (true) {
        ConsumerRecords<String, String> batch = consumer.poll(Duration.ofMillis(100));
        if (batch.isEmpty()) {
          if (isAtTheEnd(consumer)) {
            return;
          }
          continue;
        }
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<String, String> record : batch) {
          producer.send(new ProducerRecord<>(output, record.key(), record.value()));
          offsets.put(
              new TopicPartition(record.topic(), record.partition()),
              new OffsetAndMetadata(record.offset() + 1, "copied"));
        }
        copied += batch.count();
        if (copied > most) {
          producer.flush();
          Thread.sleep(Long.MAX_VALUE);
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        producer.commitTransaction();
        // Slow enough that it is mostly killed before it has copied all that it may.
        Thread.sleep(5);
      }
    }
  }

  static boolean isAtTheEnd(KafkaConsumer<String, String> consumer) {
    Set<TopicPartition> assigned = consumer.assignment();
    Map<TopicPartition, Long> ends = consumer.endOffsets(assigned);
    return !assigned.isEmpty()
        && assigned.stream().allMatch(it -> consumer.position(it) >= ends.get(it));
  }
}
