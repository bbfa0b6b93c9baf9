package eos.golden;

import java.time.Duration;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;

/** The topologies of two streams that are joined within a time. */
final class StreamJoinOperators {
  private StreamJoinOperators() {}

  static void build(Case of, StreamsBuilder builder) {
    KStream<String, String> left = stream(builder, "left");
    KStream<String, String> right = stream(builder, "right");
    KStream<String, String> joined =
        switch (of.operator) {
          case JOIN_WITHIN -> left.join(right, Operator::both, joinWindows(of), streamJoined());
          case LEFT_JOIN_WITHIN ->
              left.leftJoin(right, Operator::both, joinWindows(of), streamJoined());
          case OUTER_JOIN_WITHIN ->
              left.outerJoin(right, Operator::both, joinWindows(of), streamJoined());
          default -> throw new IllegalArgumentException(of.operator.toString());
        };
    joined.to(Operator.OUT, Produced.with(Serdes.String(), Serdes.String()));
  }

  private static KStream<String, String> stream(StreamsBuilder builder, String topic) {
    return builder.stream(topic, Consumed.with(Serdes.String(), Serdes.String()));
  }

  private static JoinWindows joinWindows(Case of) {
    return JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, Duration.ofMillis(of.graceMs))
        .before(Duration.ofMillis(of.beforeMs))
        .after(Duration.ofMillis(of.afterMs));
  }

  private static StreamJoined<String, String, String> streamJoined() {
    return StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String())
        .withStoreName(Operator.STORE);
  }
}
