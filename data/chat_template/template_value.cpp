// Memory and strings of a chat template.
#include "data/chat_template/template_value.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "data/chat_template/template_operations.h"
#include "data/tokenizer/unicode.h"

namespace zeroth::data::jinja {
namespace {

constexpr size_t kBlockBytes = size_t{32} << 10;
constexpr size_t kMaxDigits = 4300;  // Python's own limit

Value make_value(const String* string, SourceId source, bool safe) {
  Value value(Kind::kString, source);
  value.safe = safe;
  value.string = string;
  return value;
}

}  // namespace

std::string_view Value::text() const {
  return string->text();
}

Value Value::of_bool(bool value) {
  Value result(Kind::kBool);
  result.boolean = value;
  return result;
}

Value Value::of_int(int64_t value) {
  Value result(Kind::kInt);
  result.integer = value;
  return result;
}

Value Value::of_float(double value) {
  Value result(Kind::kFloat);
  result.real = value;
  return result;
}

uint32_t String::length() const {
  if (num_chars != kUnknownLength) return num_chars;
  // Bytes that continue a character are 10xxxxxx; eight of them are counted at a time.
  constexpr uint64_t kLowestBits = 0x0101010101010101;
  size_t continuations = 0, i = 0;
  for (; i + sizeof(uint64_t) <= size; i += sizeof(uint64_t)) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, data + i, sizeof(bytes));
    // The product adds the bits up in its highest byte.
    continuations += (bytes >> 7 & ~bytes >> 6 & kLowestBits) * kLowestBits >> 56;
  }
  for (; i < size; ++i) continuations += (static_cast<uint8_t>(data[i]) & 0xC0) == 0x80 ? 1 : 0;
  num_chars = static_cast<uint32_t>(size - continuations);
  return num_chars;
}

// Starts a new block, or returns one for a large piece alone.
void* Arena::allocate_block(size_t bytes) {
  require(bytes);
  const size_t block = std::max(bytes, kBlockBytes);
  blocks_.push_back(std::make_unique_for_overwrite<char[]>(block));
  used_ += block;
  if (bytes > kBlockBytes / 2) return blocks_.back().get();
  next_ = blocks_.back().get() + bytes;
  left_ = block - bytes;
  return blocks_.back().get();
}

void Arena::require(size_t bytes) const {
  if (bytes <= max_bytes_ && used_ <= max_bytes_ - bytes) return;
  throw TemplateFailure("the template needs more memory than the limit of {} bytes", max_bytes_);
}

void Arena::throw_too_many_steps() const {
  throw TemplateFailure("the template takes more than the limit of {} steps", max_steps_);
}

void TextBuilder::append(std::string_view text, SourceId source) {
  fail_if(limit_ != 0 && text.size() > limit_ - std::min(limit_, text_.size()),
          "the text is longer than the limit of {} bytes", limit_);
  if (limit_ == 0 && text.size() > kBytesPerStep) arena_.require(text_.size() + text.size());
  arena_.charge(text.size() / kBytesPerStep);
  const size_t begin = text_.size();
  text_.append(text);
  if (source != 0) add_span(begin, text_.size(), source);
}

void TextBuilder::append(const Value& string) {
  const size_t begin = text_.size();
  append(string.text(), string.source);
  for (uint32_t i = 0; i < string.string->num_spans; ++i) {
    const Span& span = string.string->spans[i];
    add_span(begin + span.begin, begin + span.end, span.source);
  }
}

void TextBuilder::append_char(char32_t character, SourceId source) {
  std::string bytes;
  zeroth::data::append_char(character, bytes);
  append(bytes, source);
}

void TextBuilder::append_times(const Value& string, int64_t count) {
  const size_t size = string.string->size;
  if (size == 0 || count <= 0) return;
  const auto times = static_cast<uint64_t>(count);
  arena_.require(times > SIZE_MAX / 2 / size ? SIZE_MAX / 2 : times * size);
  for (uint64_t i = 0; i < times; ++i) append(string);
}

void TextBuilder::add_span(size_t begin, size_t end, SourceId source) {
  if (begin == end) return;
  if (!spans_.empty() && spans_.back().end == begin && spans_.back().source == source) {
    spans_.back().end = static_cast<uint32_t>(end);
    return;
  }
  spans_.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end), source});
}

void TextBuilder::mark_since(size_t begin, SourceId source) {
  if (source == 0 || begin == text_.size()) return;
  std::vector<Span> inner;
  while (!spans_.empty() && spans_.back().end > begin) {
    Span& last = spans_.back();
    inner.push_back({std::max(last.begin, static_cast<uint32_t>(begin)), last.end, last.source});
    last.end = static_cast<uint32_t>(begin);
    if (last.begin >= last.end) spans_.pop_back();
  }
  size_t at = begin;
  for (auto span = inner.rbegin(); span != inner.rend(); ++span) {
    add_span(at, span->begin, source);
    add_span(span->begin, span->end, span->source);
    at = span->end;
  }
  add_span(at, text_.size(), source);
}

void TextBuilder::mark_generated() {
  for (Span& span : spans_) span.source |= kGenerated;
  mark_since(0, kGenerated);
}

Value TextBuilder::build(bool safe) const {
  arena_.require(text_.size());
  Value value = copy_string(arena_, text_);
  value.safe = safe;
  if (spans_.size() == 1 && spans_[0].begin == 0 && spans_[0].end == text_.size()) {
    value.source = spans_[0].source;
    return value;
  }
  auto* const string = const_cast<String*>(value.string);
  string->spans = arena_.copy(spans_.data(), spans_.size());
  string->num_spans = static_cast<uint32_t>(spans_.size());
  return value;
}

Value view_string(Arena& arena, std::string_view text, SourceId source) {
  if (text.size() >= kUnknownLength) throw TemplateFailure("a string has 4 GB or more");
  return make_value(
      arena.create(String{.data = text.data(), .size = static_cast<uint32_t>(text.size())}), source,
      false);
}

Value copy_string(Arena& arena, std::string_view text) {
  return view_string(arena, {arena.copy(text.data(), text.size()), text.size()});
}

Value substring(Arena& arena, const Value& string, size_t begin, size_t end) {
  const String& whole = *string.string;
  if (begin == 0 && end == whole.size) return string;
  if (begin >= end) {
    Value empty = view_string(arena, {});
    empty.safe = string.safe;
    return empty;
  }
  String part{.data = whole.data + begin, .size = static_cast<uint32_t>(end - begin)};
  if (whole.num_chars == whole.size) part.num_chars = part.size;
  std::vector<Span> spans;
  for (uint32_t i = 0; i < whole.num_spans; ++i) {
    const size_t first = std::max<size_t>(whole.spans[i].begin, begin);
    const size_t last = std::min<size_t>(whole.spans[i].end, end);
    if (first >= last) continue;
    spans.push_back({static_cast<uint32_t>(first - begin), static_cast<uint32_t>(last - begin),
                     whole.spans[i].source});
  }
  arena.charge(whole.num_spans);
  part.spans = arena.copy(spans.data(), spans.size());
  part.num_spans = static_cast<uint32_t>(spans.size());
  return make_value(arena.create(part), string.source, string.safe);
}

Value concat(Arena& arena, const Value& left, const Value& right) {
  const size_t size = left.text().size() + right.text().size();
  arena.require(size);
  arena.charge(size / kBytesPerStep);
  auto* const data = arena.create_array<char>(size);
  auto* const spans =
      arena.create_array<Span>(left.string->num_spans + right.string->num_spans + 2);
  uint32_t num_spans = 0, begin = 0;
  const auto add_span = [&](const Span& span) {
    Span* const last = num_spans == 0 ? nullptr : &spans[num_spans - 1];
    if (last != nullptr && last->end == begin + span.begin && last->source == span.source) {
      last->end = begin + span.end;
    } else if (span.begin < span.end) {
      spans[num_spans++] = {begin + span.begin, begin + span.end, span.source};
    }
  };
  for (const Value* part : {&left, &right}) {
    const String& string = *part->string;
    std::copy_n(string.data, string.size, data + begin);
    if (part->source != 0) add_span({0, string.size, part->source});
    for (uint32_t i = 0; i < string.num_spans; ++i) add_span(string.spans[i]);
    begin += string.size;
  }
  Value value = view_string(arena, {data, size});
  value.safe = left.safe;
  if (num_spans == 1 && spans->begin == 0 && spans->end == size) {
    value.source = spans->source;
    return value;
  }
  auto* const string = const_cast<String*>(value.string);
  string->spans = spans;
  string->num_spans = num_spans;
  return value;
}

Value parse_integer(Arena& arena, std::string_view digits) {
  fail_if(digits.size() > kMaxDigits, "an integer has more than {} digits", kMaxDigits);
  int64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ec == std::errc()) return Value::of_int(value);
  Value big = copy_string(arena, digits);
  big.kind = Kind::kBigInt;
  return big;
}

size_t char_offset(const String& string, int64_t index) {
  if (string.length() == string.size) {
    return static_cast<size_t>(std::min<int64_t>(index, string.size));
  }
  size_t at = 0;
  for (; index > 0 && at < string.size; --index) at += utf8_length(string.data[at]);
  return at;
}

SourceId source_at(const Value& string, size_t offset) {
  if (string.source != 0 || string.string->num_spans == 0) return string.source;
  const Span* const begin = string.string->spans;
  const Span* const end = begin + string.string->num_spans;
  const Span* const span = std::upper_bound(
      begin, end, offset, [](size_t at, const Span& other) { return at < other.end; });
  return span != end && span->begin <= offset ? span->source : 0;
}

}  // namespace zeroth::data::jinja
