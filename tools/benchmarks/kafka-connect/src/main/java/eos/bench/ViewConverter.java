package eos.bench;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import java.io.IOException;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.storage.Converter;

/**
 * Converts page views with a fixed schema. Connect's JSON converter needs the schema in every record.
 */
public final class ViewConverter implements Converter {
    /** The fields of a page view. */
    public record View(String user, String page, long ms, long seq, String pad) {}

    private static final Schema SCHEMA = SchemaBuilder.struct()
            .name("eos.bench.View")
            .field("username", Schema.STRING_SCHEMA)
            .field("page", Schema.STRING_SCHEMA)
            .field("ms", Schema.INT64_SCHEMA)
            .field("seq", Schema.INT64_SCHEMA)
            .field("pad", Schema.STRING_SCHEMA)
            .build();

    private final ObjectReader reader = new ObjectMapper().readerFor(View.class);

    @Override
    public void configure(Map<String, ?> configs, boolean isKey) {}

    @Override
    public SchemaAndValue toConnectData(String topic, byte[] value) {
        try {
            View view = reader.readValue(value);
            Struct struct = new Struct(SCHEMA)
                    .put("username", view.user())
                    .put("page", view.page())
                    .put("ms", view.ms())
                    .put("seq", view.seq())
                    .put("pad", view.pad());
            return new SchemaAndValue(SCHEMA, struct);
        } catch (IOException e) {
            throw new DataException("failed to decode a page view", e);
        }
    }

    @Override
    public byte[] fromConnectData(String topic, Schema schema, Object value) {
        throw new UnsupportedOperationException("ViewConverter only reads");
    }
}
