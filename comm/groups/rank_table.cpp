#include "comm/groups/rank_table.h"

#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace zeroth::comm {
namespace {

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

constexpr char kUnknown = '?';

// Returns the state letter of /proc/PID/stat: R, S, T (stopped), Z (ended), ...; 0: no such
// process. A failure to read the file (too many are open) does not mean that the process is gone.
char process_state(int pid) {
  std::string line;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), line);
  const size_t name_end = line.rfind(") ");
  if (name_end != std::string::npos) return line[name_end + 2];
  return ::kill(pid, 0) != 0 && errno == ESRCH ? 0 : kUnknown;
}

bool has_ended(char state) {
  return state == 0 || state == 'Z' || state == 'X';
}

std::string describe_list(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace

RankTable::RankTable(std::shared_ptr<SharedSegment> segment, int rank, int size, Members members)
    : segment_(std::move(segment)),
      rows_(reinterpret_cast<RankRow*>(segment_->data()), static_cast<size_t>(size)),
      rank_(rank),
      members_(std::move(members)) {
  ZEROTH_CHECK(segment_->size() >= bytes(size), "{} bytes for {} ranks", segment_->size(), size);
  int32_t expected_pid = 0;
  if (!rows_[static_cast<size_t>(rank)].pid.compare_exchange_strong(expected_pid, getpid()))
    throw Error(
        "rank {} of this run is already process {}: RANK is duplicate, or two runs use the same "
        "MASTER_ADDR and MASTER_PORT",
        members_.global_rank(rank), expected_pid);
  rows_[static_cast<size_t>(rank)].changed_ns = now_ns();
}

RankTable::~RankTable() {
  rows_[static_cast<size_t>(rank_)].left = true;
}

void RankTable::issue(uint64_t sequence, std::string_view description) {
  RankRow& row = rows_[static_cast<size_t>(rank_)];
  auto& text = row.last[sequence % 2];
  const size_t length = std::min(description.size(), text.size() - 1);
  std::memcpy(text.data(), description.data(), length);
  text[length] = '\0';
  row.changed_ns.store(now_ns(), std::memory_order_relaxed);
  row.issued.store(sequence, std::memory_order_release);
}

void RankTable::finish(uint64_t sequence) {
  RankRow& row = rows_[static_cast<size_t>(rank_)];
  row.changed_ns.store(now_ns(), std::memory_order_relaxed);
  row.finished.store(sequence, std::memory_order_release);
}

bool RankTable::is_alive(int rank) const {
  const RankRow& row = rows_[static_cast<size_t>(rank)];
  return !row.left && (row.pid == 0 || !has_ended(process_state(row.pid)));
}

std::string RankTable::lost_before(uint64_t sequence) const {
  for (int rank = 0; rank < static_cast<int>(rows_.size()); ++rank) {
    const bool is_late = rows_[static_cast<size_t>(rank)].issued.load() < sequence;
    if (is_late && !is_alive(rank))
      return fmt::format("rank {}{} is gone", members_.global_rank(rank), members_.on_node());
  }
  return {};
}

std::string RankTable::describe(int rank, uint64_t sequence) const {
  const RankRow& row = rows_[static_cast<size_t>(rank)];
  const int global_rank = members_.global_rank(rank);
  const std::string on_node = members_.on_node();
  if (row.pid == 0) return fmt::format("rank {}{} has not connected", global_rank, on_node);
  const char state = process_state(row.pid);
  const char* condition = row.left           ? ", has left"
                          : has_ended(state) ? ", has ended"
                          : state == 'T'     ? ", stopped"
                          : state == 'D'     ? ", waiting for a disk"
                                             : "";
  const uint64_t issued = row.issued.load(std::memory_order_acquire);
  const double seconds = static_cast<double>(now_ns() - row.changed_ns) / 1e9;
  const std::string who =
      fmt::format("rank {} (process {}{}{})", global_rank, row.pid.load(), on_node, condition);
  if (issued == 0) return fmt::format("{} has not started a collective yet", who);
  const bool done = row.finished.load(std::memory_order_acquire) >= issued;
  return fmt::format("{} {} {}{} {:.1f} s ago", who, done ? "last finished" : "last started",
                     issued == sequence ? "this " : "", row.last[issued % 2].data(), seconds);
}

std::string RankTable::explain(uint64_t sequence, const std::vector<int>& late) const {
  std::vector<int> arrived;
  std::vector<std::string> missing, disturbed;
  for (int rank = 0; rank < static_cast<int>(rows_.size()); ++rank) {
    const RankRow& row = rows_[static_cast<size_t>(rank)];
    const bool holds_up = std::find(late.begin(), late.end(), rank) != late.end();
    if (holds_up || row.issued.load(std::memory_order_acquire) < sequence) {
      missing.push_back(describe(rank, sequence));
    } else {
      arrived.push_back(members_.global_rank(rank));
      if (!is_alive(rank) || process_state(row.pid) == 'T')
        disturbed.push_back(describe(rank, sequence));
    }
  }
  if (!missing.empty()) {
    return fmt::format("{} arrived; missing: {}",
                       arrived.empty() ? "no rank" : describe_list(arrived),
                       fmt::join(missing, "; "));
  }
  return fmt::format("all its ranks have started it{}{}", disturbed.empty() ? "" : ": ",
                     fmt::join(disturbed, "; "));
}

}  // namespace zeroth::comm
