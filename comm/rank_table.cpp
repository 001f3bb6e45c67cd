#include "comm/rank_table.h"

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

// The state letter of /proc/PID/stat: R, S, T (stopped), Z (ended), ...; 0: no such process. That
// the file cannot be read (too many are open) says nothing about the process.
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

std::string listed(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace

RankTable::RankTable(std::shared_ptr<SharedSegment> segment, int rank, int size, Members members)
    : segment_(std::move(segment)),
      rows_(reinterpret_cast<RankRow*>(segment_->data()), static_cast<size_t>(size)),
      rank_(rank),
      members_(std::move(members)) {
  ZEROTH_CHECK(segment_->size() >= bytes(size), "{} bytes for {} ranks", segment_->size(), size);
  int32_t nobody = 0;
  if (!rows_[static_cast<size_t>(rank)].pid.compare_exchange_strong(nobody, getpid()))
    throw Error(
        "rank {} of this run is process {} already: RANK is the same twice, or two runs use "
        "one MASTER_ADDR and MASTER_PORT",
        members_.number(rank), nobody);
  rows_[static_cast<size_t>(rank)].changed_ns = now_ns();
}

RankTable::~RankTable() {
  rows_[static_cast<size_t>(rank_)].left = true;
}

void RankTable::issue(uint64_t number, std::string_view description) {
  RankRow& row = rows_[static_cast<size_t>(rank_)];
  auto& text = row.last[number % 2];
  const size_t length = std::min(description.size(), text.size() - 1);
  std::memcpy(text.data(), description.data(), length);
  text[length] = '\0';
  row.changed_ns.store(now_ns(), std::memory_order_relaxed);
  row.issued.store(number, std::memory_order_release);
}

void RankTable::finish(uint64_t number) {
  RankRow& row = rows_[static_cast<size_t>(rank_)];
  row.changed_ns.store(now_ns(), std::memory_order_relaxed);
  row.finished.store(number, std::memory_order_release);
}

bool RankTable::lost(int rank) const {
  const RankRow& row = rows_[static_cast<size_t>(rank)];
  return row.left || (row.pid != 0 && has_ended(process_state(row.pid)));
}

std::string RankTable::lost_before(uint64_t number) const {
  for (int rank = 0; rank < static_cast<int>(rows_.size()); ++rank) {
    const bool behind = rows_[static_cast<size_t>(rank)].issued.load() < number;
    if (behind && lost(rank))
      return fmt::format("rank {}{} is gone", members_.number(rank), members_.on_host());
  }
  return {};
}

std::string RankTable::describe(int rank, uint64_t number) const {
  const RankRow& row = rows_[static_cast<size_t>(rank)];
  const int called = members_.number(rank);
  const std::string on_host = members_.on_host();
  if (row.pid == 0) return fmt::format("rank {}{} has not connected", called, on_host);
  const char state = process_state(row.pid);
  const char* condition = row.left           ? ", has left"
                          : has_ended(state) ? ", has ended"
                          : state == 'T'     ? ", stopped"
                          : state == 'D'     ? ", waiting for a disk"
                                             : "";
  const uint64_t issued = row.issued.load(std::memory_order_acquire);
  const double seconds = static_cast<double>(now_ns() - row.changed_ns) / 1e9;
  const std::string who =
      fmt::format("rank {} (process {}{}{})", called, row.pid.load(), on_host, condition);
  if (issued == 0) return fmt::format("{} has begun no collective yet", who);
  const bool done = row.finished.load(std::memory_order_acquire) >= issued;
  return fmt::format("{} {} {}{} {:.1f} s ago", who, done ? "last ended" : "last began",
                     issued == number ? "this " : "", row.last[issued % 2].data(), seconds);
}

std::string RankTable::explain(uint64_t number, const std::vector<int>& late) const {
  std::vector<int> arrived;
  std::vector<std::string> missing, disturbed;
  for (int rank = 0; rank < static_cast<int>(rows_.size()); ++rank) {
    const RankRow& row = rows_[static_cast<size_t>(rank)];
    const bool holds_up = std::find(late.begin(), late.end(), rank) != late.end();
    if (holds_up || row.issued.load(std::memory_order_acquire) < number) {
      missing.push_back(describe(rank, number));
    } else {
      arrived.push_back(members_.number(rank));
      if (lost(rank) || process_state(row.pid) == 'T') disturbed.push_back(describe(rank, number));
    }
  }
  if (!missing.empty()) {
    return fmt::format("{} arrived; missing: {}", arrived.empty() ? "nobody" : listed(arrived),
                       fmt::join(missing, "; "));
  }
  return fmt::format("all its ranks have begun it{}{}", disturbed.empty() ? "" : ": ",
                     fmt::join(disturbed, "; "));
}

}  // namespace zeroth::comm
