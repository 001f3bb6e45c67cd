// Formatting of strings: `format % arguments` and format.format(...). Templates use %s, %d and
// simple fields; anything else is refused by name.
#include <algorithm>

#include "base/text/printable.h"
#include "data/chat_template/template_evaluator.h"

namespace zeroth::data::jinja {
namespace {

// A field after '%', or after ':' in braces: [align][width][type].
struct Field {
  char align = 0;  // 0 for the type's own
  int64_t width = 0;
  char type = 0;
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Reads a whole number at `at` and moves behind it; 0 if there is none.
int64_t read_number(std::string_view text, size_t& at) {
  int64_t value = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    value = std::min<int64_t>(value * 10 + (text[at] - '0'), int64_t{1} << 40);
  }
  return value;
}

// Reads a field and moves past its type.
Field read_field(std::string_view text, size_t& at, std::string_view alignments) {
  Field field;
  if (at < text.size() && alignments.find(text[at]) != alignments.npos) field.align = text[at++];
  if (at < text.size() && text[at] == '0')
    throw TemplateFailure("zeros in a format are not supported");
  field.width = read_number(text, at);
  if (at < text.size()) field.type = text[at++];
  return field;
}

// Appends a value; throws for what the field does not fit.
void append_field(TextBuilder& out, const Field& field, const Value& value, char text_align) {
  Arena& arena = out.arena();
  const bool is_text = value.is_string() && (field.type == 's' || field.type == 0);
  const bool is_integer = value.is(Kind::kInt) && (field.type == 'd' || field.type == 0);
  fail_if(!is_text && !is_integer, "the format '{}' of '{}' is not supported",
          printable({&field.type, 1}), type_name(value));
  const Value text = to_string_value(arena, value);
  const int64_t space = field.width - int64_t{text.string->length()};
  const char align = field.align != 0 ? field.align : is_text ? text_align : '>';
  const int64_t before = align == '>' ? space : align == '^' ? space / 2 : 0;
  const Value fill = view_string(arena, " ");
  out.append_times(fill, before);
  out.append(text);
  out.append_times(fill, space - before);
}

// Returns the argument that a field in braces stands for: "", "0" or a name.
Value find_argument(const CallArguments& arguments, std::string_view name, size_t& next) {
  if (!std::all_of(name.begin(), name.end(), is_digit)) {
    for (const auto& [key, value] : arguments.named) {
      if (key == name) return value;
    }
    throw TemplateFailure("the format has no argument '{}'", shortened(name));
  }
  size_t at = 0;
  const auto index = name.empty() ? next++ : static_cast<size_t>(read_number(name, at));
  if (index < arguments.positional.size()) return arguments.positional[index];
  throw TemplateFailure("replacement index {} out of range for positional args", index);
}

}  // namespace

Value format_percent(Arena& arena, const Value& format, const Value& arguments) {
  const std::string_view text = format.text();
  const bool several = arguments.is(Kind::kTuple);
  const std::vector<Value> values = several ? collect(arena, arguments) : std::vector{arguments};
  TextBuilder out(arena);
  size_t next = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t percent = std::min(text.find('%', at), text.size());
    out.append(substring(arena, format, at, percent));
    at = percent + 1;
    if (percent == text.size()) break;
    const Field field = read_field(text, at, "");
    if (field.type == '%' && at == percent + 2) {
      out.append("%");
      continue;
    }
    if (next >= values.size()) throw TemplateFailure("not enough arguments for format string");
    const Value& value = values[next++];
    const Value shown = field.type == 's' ? to_string_value(arena, value) : value;
    if (field.type == 0) throw TemplateFailure("incomplete format");
    append_field(out, field, shown, '>');
  }
  const bool ignored = arguments.is(Kind::kDict) || arguments.is(Kind::kList);
  fail_if(next < values.size() && !ignored, "not all arguments converted during string formatting");
  return out.build();
}

Value format_braces(Arena& arena, const Value& format, const CallArguments& arguments) {
  const std::string_view text = format.text();
  TextBuilder out(arena);
  bool numbered = false;
  size_t next = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t brace = std::min(text.find_first_of("{}", at), text.size());
    out.append(substring(arena, format, at, brace));
    if (brace == text.size()) break;
    const std::string_view rest = text.substr(brace + 1);
    if (rest.starts_with(text[brace])) {
      out.append(substring(arena, format, brace, brace + 1));
      at = brace + 2;
      continue;
    }
    const size_t end = rest.find_first_of("{}");
    const std::string_view inner = rest.substr(0, end);
    const std::string_view name = inner.substr(0, inner.find(':'));
    numbered |= !name.empty() && is_digit(name[0]);
    const bool is_field = text[brace] == '{' && end != rest.npos && rest[end] == '}';
    fail_if(!is_field || name.find_first_of("!.[") != name.npos ||
                (numbered && (next > 0 || name.empty())),
            "the field '{}' of a format is not supported", shortened(inner));
    const Value value = find_argument(arguments, name, next);
    size_t spec = name.size() + 1;
    if (spec >= inner.size()) {
      append_str(out, value);
    } else {
      append_field(out, read_field(inner, spec, "<>^"), value, '<');
      if (spec < inner.size()) throw TemplateFailure("a format is too long");
    }
    at = brace + 2 + end;
  }
  return out.build();
}

}  // namespace zeroth::data::jinja
