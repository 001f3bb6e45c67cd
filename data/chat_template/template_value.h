// Values of a chat template while it renders, and the memory that holds them. They need no
// destructor. Only namespaces, loops and what counts a position change. A value carries the message
// field from which it came, so that each range of the output can be traced to its source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace zeroth::data::jinja {

// Maximum nesting of lists and objects that are read, printed or compared.
inline constexpr int kMaxDepth = 256;

struct Dict;
struct Function;
struct Loop;
struct Macro;
struct Sequence;
struct String;

enum class Kind : uint8_t {
  kMissing,     // no value: a name that a scope does not have, an argument that is not passed
  kUnassigned,  // a variable before its first assignment
  kUndefined,
  kNone,
  kBool,
  kInt,
  kBigInt,  // beyond 64 bits; it can only be printed
  kFloat,
  kString,
  kList,
  kTuple,
  kRange,
  kView,       // what keys(), values() and items() of a dict return
  kGenerator,  // a list that can be consumed once
  kDict,
  kNamespace,
  kMacro,
  kLoop,
  kFunction,
  kCycler,
  kJoiner,
};

// Identifies a message field. 0 is text of the template. Bits mark text that a `{% generation %}`
// block wrote, and a message as a whole: the template's words while a loop is at it.
using SourceId = uint32_t;
inline constexpr SourceId kGenerated = SourceId{1} << 31, kMessage = SourceId{1} << 30;

struct Value {
  Value() = default;
  explicit Value(Kind initial, SourceId from = 0) : kind(initial), source(from) {}

  Kind kind = Kind::kMissing;
  bool safe = false;    // a string that `escape` or `safe` marked, Python's Markup
  SourceId source = 0;  // of the whole value; a string with 0 can have spans
  union {
    int64_t integer = 0;
    bool boolean;
    double real;
    const String* string;      // also the digits of a kBigInt and the message of a kUndefined
    const Sequence* sequence;  // of all kinds with items but dicts
    const Dict* dict;
    Dict* name_space;
    const Macro* macro;
    Loop* loop;
    const Function* function;
  };

  bool is(Kind other) const { return kind == other; }
  bool is_missing() const { return kind == Kind::kMissing; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_integral() const { return kind == Kind::kInt || kind == Kind::kBool; }
  bool is_number() const { return is_integral() || is(Kind::kFloat) || is(Kind::kBigInt); }
  bool is_list() const { return is(Kind::kList) || is(Kind::kTuple); }
  bool is_sequence() const { return is_list() || is(Kind::kRange) || is(Kind::kView); }
  std::string_view text() const;  // of a string
  // Of kInt and kBool.
  int64_t as_integer() const { return kind == Kind::kBool ? int64_t{boolean} : integer; }
  static Value none() { return Value(Kind::kNone); }
  static Value of_bool(bool value);
  static Value of_int(int64_t value);
  static Value of_float(double value);
};

struct Span {
  uint32_t begin = 0;  // bytes
  uint32_t end = 0;
  SourceId source = 0;
};

inline constexpr uint32_t kUnknownLength = UINT32_MAX;

// UTF-8. The bytes belong to the arena, to the template or to the caller's context.
struct String {
  const char* data = nullptr;
  uint32_t size = 0;
  mutable uint32_t num_chars = kUnknownLength;
  const Span* spans = nullptr;  // ascending, disjoint
  uint32_t num_spans = 0;

  std::string_view text() const { return {data, size}; }
  uint32_t length() const;  // in characters
};

struct Sequence {
  const Value* items = nullptr;
  size_t size = 0;
  std::string_view printed = {};  // how Python prints a range; the type of a view
  mutable size_t position = 0;    // of the next item of a cycler; above 0 for a used generator

  const Value* begin() const { return items; }
  const Value* end() const { return items + size; }
};

struct Pair {
  Value key, value;
};

struct Dict {
  const Pair* pairs = nullptr;
  size_t size = 0;

  const Pair* begin() const { return pairs; }
  const Pair* end() const { return pairs + size; }
};

// Memory and steps of one rendering, or memory of one template's constants. Throws a
// TemplateFailure beyond a limit.
class Arena {
 public:
  explicit Arena(size_t max_bytes, uint64_t max_steps = UINT64_MAX)
      : max_bytes_(max_bytes), steps_left_(max_steps), max_steps_(max_steps) {}

  // Counts work: about one step for each node of the template, item or 16 bytes.
  void charge(uint64_t steps) {
    if (steps > steps_left_) throw_too_many_steps();
    steps_left_ -= steps;
  }

  void* allocate(size_t bytes) {
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (rounded > left_) return allocate_block(rounded);
    left_ -= rounded;
    return std::exchange(next_, next_ + rounded);
  }

  template <typename T>
  T* create(T value) {
    static_assert(std::is_trivially_destructible_v<T>);
    return new (allocate(sizeof(T))) T(value);
  }

  template <typename T>
  T* create_array(size_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    T* const items = static_cast<T*>(allocate(count * sizeof(T)));
    std::uninitialized_default_construct_n(items, count);
    return items;
  }

  template <typename T>
  T* copy(const T* from, size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (count == 0) return nullptr;
    return static_cast<T*>(std::memcpy(allocate(count * sizeof(T)), from, count * sizeof(T)));
  }

  // Throws a TemplateFailure if so many bytes more exceed the limit.
  void require(size_t bytes) const;

  // Buffers that a TextBuilder leaves to the next one.
  std::string spare_text;
  std::vector<Span> spare_spans;

 private:
  static constexpr size_t kAlignment = alignof(std::max_align_t);

  void* allocate_block(size_t bytes);
  [[noreturn]] void throw_too_many_steps() const;

  std::vector<std::unique_ptr<char[]>> blocks_;
  char* next_ = nullptr;
  size_t left_ = 0;
  size_t used_ = 0;
  size_t max_bytes_;
  uint64_t steps_left_;
  uint64_t max_steps_;
};

}  // namespace zeroth::data::jinja
