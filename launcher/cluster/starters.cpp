#include "launcher/cluster/starters.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "base/process_limits.h"
#include "launcher/machine/machine.h"
#include "launcher/run/find_program.h"

namespace zeroth::launcher {
namespace {

// The read end of a pipe that holds `text`, which must fit into it.
FileDescriptor input_with(const std::string& text) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw Error("no pipe: {}", system_reason(errno));
  FileDescriptor read_end(ends[0]);
  const FileDescriptor write_end(ends[1]);
  ZEROTH_CHECK(text.size() <= 4096, "an input of {} bytes", text.size());
  if (::write(write_end.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw Error("no input for a process: {}", system_reason(errno));
  return read_end;
}

}  // namespace

class Starters::Output final : public LineTarget {
 public:
  Output(Starters& owner, Starter& starter) : owner_(owner), starter_(starter) {}

  void take(std::string_view text, LineEnd end) override;
  bool full() const override { return false; }
  void when_empty(std::function<void()> callback) override { callback(); }

 private:
  Starters& owner_;
  Starter& starter_;
};

struct Starters::Starter {
  std::string name;  // of the program
  std::vector<int> hosts;
  std::string host;  // the name of a single one
  std::optional<RankProcess> process = {};
  std::unique_ptr<Output> output = {};
  std::unique_ptr<RankStream> out = {};
  std::unique_ptr<RankStream> err = {};
  std::string last_line = {};
  bool ended = false;
};

void Starters::Output::take(std::string_view text, LineEnd /*end*/) {
  if (text.ends_with('\r')) text.remove_suffix(1);  // as ssh ends its lines
  if (text.empty()) return;
  starter_.last_line = shortened(text, 400);
  const std::string prefix = starter_.host.empty() ? starter_.name : starter_.host;
  owner_.handlers_.on_line(fmt::format("{}: {}", prefix, printable(text)));
}

Starters::Starters(boost::asio::io_context& io, std::vector<std::string> hosts,
                   std::filesystem::path own_folder, Handlers handlers)
    : io_(io),
      hosts_(std::move(hosts)),
      own_folder_(std::move(own_folder)),
      handlers_(std::move(handlers)),
      children_(io, SIGCHLD),
      limit_(io) {
  wait_for_children();
}

Starters::~Starters() {
  for (const auto& starter : starters_)
    if (starter->process) starter->process->kill_and_reap();
}

void Starters::start(const AgentCommand& command) {
  auto starter = std::make_unique<Starter>();
  starter->name = std::filesystem::path(command.argv.at(0)).filename();
  starter->hosts = command.hosts;
  if (command.hosts.size() == 1) starter->host = hosts_.at(static_cast<size_t>(command.hosts[0]));
  const std::string path = LaunchEnvironment::from_process().path;
  const Program program{find_program(command.argv[0], own_folder_, path), command.argv};
  const FileDescriptor input = input_with(command.input);
  RankSpec spec;
  spec.env = command.env;
  starter->process.emplace(RankProcess::start(program, spec, input.get()));
  starter->output = std::make_unique<Output>(*this, *starter);
  const auto open = [&](FileDescriptor& source) {
    auto stream = std::make_unique<RankStream>(io_, std::move(source), *starter->output);
    stream->start([] {});
    return stream;
  };
  starter->out = open(starter->process->out);
  starter->err = open(starter->process->err);
  starters_.push_back(std::move(starter));
}

void Starters::wait_for_children() {
  children_.async_wait([this](boost::system::error_code error, int) {
    if (error) return;
    look();
    wait_for_children();
  });
}

void Starters::look() {
  for (size_t i = 0; i < starters_.size(); ++i) {  // a callback may start more
    Starter& starter = *starters_[i];
    if (starter.ended) continue;
    const auto ending = starter.process->poll_ending();
    if (!ending) continue;
    starter.ended = true;
    for (RankStream* stream : {starter.out.get(), starter.err.get()}) stream->drain();
    starter.process->kill_and_reap();
    const std::string last = starter.last_line.empty() ? "" : ": " + starter.last_line;
    handlers_.on_end(starter.hosts, ending->failed(),
                     fmt::format("{} {}{}", starter.name, describe(*ending), last));
  }
  // There may be thousands in the life of a run.
  std::erase_if(starters_, [](const auto& starter) { return starter->ended; });
  if (!when_ended_ || !starters_.empty()) return;
  limit_.cancel();
  std::exchange(when_ended_, nullptr)();
}

void Starters::when_ended(std::chrono::milliseconds limit, std::function<void()> callback) {
  when_ended_ = std::move(callback);
  limit_.start(limit, [this] {
    for (const auto& starter : starters_)
      if (!starter->ended) starter->process->signal_group(SIGKILL);
  });
  look();
}

}  // namespace zeroth::launcher
