#include "launcher/transport/messages.h"

#include <concepts>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "base/text/printable.h"

namespace zeroth::launcher {
namespace {

// Visits the fields of each message, in the order of their bytes. `Record` is const for writing.
template <typename Record, typename Visit>
void visit_fields(Record& r, Visit& visit) {
  using T = std::remove_const_t<Record>;
  if constexpr (std::same_as<T, Hello>) visit(r.version, r.node);
  if constexpr (std::same_as<T, Join>) visit(r.version, r.name, r.num_ranks);
  if constexpr (std::same_as<T, Problems>) visit(r.texts);
  if constexpr (std::same_as<T, Ready>)
    visit(r.accelerator, r.model, r.master_port, r.notes, r.machine, r.gpus);
  if constexpr (std::same_as<T, OutputLines>) visit(r.lines);
  if constexpr (std::same_as<T, OutputLines::OutputLine>) visit(r.rank, r.error, r.redraws, r.text);
  if constexpr (std::same_as<T, Warning>) visit(r.text);
  if constexpr (std::same_as<T, Drained>) visit(r.oom_kills);
  if constexpr (std::same_as<T, RanksPolled>) visit(r.ended, r.stopped);
  if constexpr (std::same_as<T, RankExit>)
    visit(r.rank, r.exit_status, r.reason);  // the receiver knows the host
  if constexpr (std::same_as<T, ExitStatus>) visit(r.by_signal, r.code);
  if constexpr (std::same_as<T, SuspendedRank>) visit(r.rank, r.pid);
  if constexpr (std::same_as<T, SignalReceived>) visit(r.signal);
  if constexpr (std::same_as<T, SignalRanks>) visit(r.signal);
  if constexpr (std::same_as<T, Suspend>) visit(r.stop);
  if constexpr (std::same_as<T, WindowUpdate>) visit(r.bytes);
  if constexpr (std::same_as<T, RemoteJob>) {
    visit(r.command, r.working_directory, r.env, r.slots, r.share_gpus, r.oversubscribe,
          r.bind_cores);
    visit(r.bind_core_list);
    visit(r.timeout_seconds, r.master_port, r.liveness_timeout, r.failure_grace, r.requeue_code);
  }
  if constexpr (std::same_as<T, StartRanks>) {
    visit(r.first_rank, r.num_ranks, r.world_size, r.node_rank, r.num_nodes);
    visit(r.master_addr, r.master_port, r.launch_time, r.terminal_columns, r.attempt);
  }
  if constexpr (std::same_as<T, RestartAttempt>) visit(r.run, r.index, r.cause);
  if constexpr (std::same_as<T, Shutdown>) visit(r.status, r.why);
}

// ByteWriter writes fields one after the other: numbers in 8 bytes, little-endian; strings and
// lists after their lengths.
class ByteWriter {
 public:
  template <typename... Fields>
  void operator()(const Fields&... fields) {
    (put(fields), ...);
  }
  std::string take() { return std::move(bytes_); }

 private:
  void put_word(uint64_t word) {
    for (int i = 0; i < 8; ++i) bytes_.push_back(static_cast<char>(word >> (8 * i) & 0xff));
  }
  template <typename Number>
  requires std::is_integral_v<Number>
  void put(Number number) { put_word(static_cast<uint64_t>(number)); }
  void put(double number) {
    uint64_t word = 0;
    std::memcpy(&word, &number, sizeof(word));
    put_word(word);
  }
  void put(std::chrono::milliseconds time) { put(time.count()); }
  void put(const std::string& text) {
    put_word(text.size());
    bytes_ += text;
  }
  template <typename First, typename Second>
  void put(const std::pair<First, Second>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <typename Value>
  void put(const std::optional<Value>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <typename Value>
  void put(const std::vector<Value>& values) {
    put_word(values.size());
    for (const Value& value : values) put(value);
  }
  template <typename Record>
  requires std::is_class_v<Record>
  void put(const Record& record) { visit_fields(record, *this); }

  std::string bytes_;
};

// ByteReader reads what ByteWriter has written. Throws Error if the bytes are invalid: too short, a
// number outside its type's range, or a list longer than the remaining bytes.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <typename... Fields>
  void operator()(Fields&... fields) {
    (get(fields), ...);
  }
  bool at_end() const { return rest_.empty(); }

 private:
  [[noreturn]] static void refuse() { throw Error("malformed message"); }

  uint64_t get_word() {
    if (rest_.size() < 8) refuse();
    uint64_t word = 0;
    for (size_t i = 8; i-- > 0;) word = word << 8 | static_cast<unsigned char>(rest_[i]);
    rest_.remove_prefix(8);
    return word;
  }
  // Every entry of a list takes one word or more.
  size_t get_length(size_t bytes_each) {
    const uint64_t length = get_word();
    if (length > rest_.size() / bytes_each) refuse();
    return static_cast<size_t>(length);
  }
  void get(bool& flag) {
    const uint64_t word = get_word();
    if (word > 1) refuse();
    flag = word == 1;
  }
  template <typename Number>
  requires std::is_integral_v<Number>
  void get(Number& number) {
    const auto word =
        static_cast<std::conditional_t<std::is_signed_v<Number>, int64_t, uint64_t>>(get_word());
    if (word < std::numeric_limits<Number>::min() || word > std::numeric_limits<Number>::max())
      refuse();
    number = static_cast<Number>(word);
  }
  void get(double& number) {
    const uint64_t word = get_word();
    std::memcpy(&number, &word, sizeof(word));
  }
  void get(std::chrono::milliseconds& time) {
    int64_t count = 0;
    get(count);
    time = std::chrono::milliseconds(count);
  }
  void get(std::string& text) {
    const size_t length = get_length(1);
    text = rest_.substr(0, length);
    rest_.remove_prefix(length);
  }
  template <typename First, typename Second>
  void get(std::pair<First, Second>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <typename Value>
  void get(std::optional<Value>& value) {
    bool there = false;
    get(there);
    value.reset();
    if (there) get(value.emplace());
  }
  template <typename Value>
  void get(std::vector<Value>& values) {
    values.clear();
    values.resize(get_length(8));
    for (Value& value : values) get(value);
  }
  template <typename Record>
  requires std::is_class_v<Record>
  void get(Record& record) { visit_fields(record, *this); }

  std::string_view rest_;
};

template <size_t kKind = 0>
Message read_kind(uint64_t kind, ByteReader& reader) {
  if constexpr (kKind < std::variant_size_v<Message>) {
    if (kind != kKind) return read_kind<kKind + 1>(kind, reader);
    std::variant_alternative_t<kKind, Message> message;
    reader(message);
    return message;
  } else {
    throw Error("unknown kind of message: {}", kind);
  }
}

std::string showable(const std::string& text) {
  if (text.size() > kMaxTextBytes) return shortened(text, kMaxTextBytes);
  std::string shown = printable_message(text);
  shown.erase(shown.find_last_not_of('\n') + 1);
  return shown;
}

// ShowableTexts visits all fields, including those of nested records.
class ShowableTexts {
 public:
  template <typename... Fields>
  void operator()(Fields&... fields) {
    (visit(fields), ...);
  }

 private:
  void visit(std::string& text) { text = showable(text); }
  void visit(std::vector<std::string>& texts) {
    if (texts.size() > kMaxTexts) texts.resize(kMaxTexts);
    for (std::string& text : texts) visit(text);
  }
  template <typename Record>
  requires std::is_class_v<Record>
  void visit(std::vector<Record>& records) {
    for (Record& record : records) visit_fields(record, *this);
  }
  void visit(RestartAttempt& attempt) { visit_fields(attempt, *this); }
  template <typename Other>
  void visit(Other& /*number*/) {}
};

}  // namespace

void make_showable(Message& message) {
  std::visit(
      []<typename Kind>(Kind& what) {
        if constexpr (!std::same_as<Kind, RemoteJob> && !std::same_as<Kind, OutputLines>) {
          ShowableTexts texts;
          visit_fields(what, texts);
        }
      },
      message);
}

std::string encode(const Message& message) {
  ByteWriter writer;
  writer(message.index());
  std::visit([&](const auto& what) { writer(what); }, message);
  return writer.take();
}

Message decode(std::string_view bytes) {
  ByteReader reader(bytes);
  uint64_t kind = 0;
  reader(kind);
  Message message = read_kind(kind, reader);
  if (!reader.at_end()) throw Error("trailing bytes in message");
  return message;
}

}  // namespace zeroth::launcher
