package eos.golden;

import java.util.Iterator;
import java.util.Map;

/** JSON on one line, its fields in the order in which they were put. */
final class Json {
  private Json() {}

  static String line(Object value) {
    StringBuilder out = new StringBuilder();
    write(out, value);
    return out.append('\n').toString();
  }

  private static void write(StringBuilder out, Object value) {
    if (value instanceof String text) {
      quote(out, text);
    } else if (value instanceof Map<?, ?> map) {
      out.append('{');
      Iterator<? extends Map.Entry<?, ?>> entries = map.entrySet().iterator();
      while (entries.hasNext()) {
        Map.Entry<?, ?> entry = entries.next();
        quote(out, (String) entry.getKey());
        out.append(": ");
        write(out, entry.getValue());
        out.append(entries.hasNext() ? ", " : "");
      }
      out.append('}');
    } else if (value == null
        || value instanceof Long
        || value instanceof Integer
        || value instanceof Boolean) {
      out.append(value);
    } else {
      throw new IllegalArgumentException("no JSON for " + value.getClass());
    }
  }

  private static void quote(StringBuilder out, String text) {
    out.append('"');
    for (char c : text.toCharArray()) {
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < ' ') {
        out.append(String.format("\\u%04x", (int) c));
      } else {
        out.append(c);
      }
    }
    out.append('"');
  }
}
