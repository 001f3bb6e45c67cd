#include "launcher/transport/messages.h"

#include <array>
#include <concepts>

#include "base/text/printable.h"
#include "launcher/transport/message_bytes.h"

namespace zeroth::launcher {

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
    visit(r.first_rank, r.world_size, r.node_rank, r.num_nodes, r.master_addr, r.master_port);
    visit(r.launch_time, r.terminal_columns, r.attempt);
  }
  if constexpr (std::same_as<T, RestartAttempt>) visit(r.run_id, r.index, r.cause);
  if constexpr (std::same_as<T, Shutdown>) visit(r.status, r.why);
}

namespace {

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
