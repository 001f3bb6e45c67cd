#include "comm/nodes/node_segment.h"

#include "base/error.h"
#include "comm/bootstrap/key_value_store.h"

namespace zeroth::comm {
namespace {

constexpr size_t kMaxTextBytes = 1000;  // limit, because a stranger's text can have any length
constexpr const char* kOk = "ok";
constexpr const char* kTicket = "host/ticket";
constexpr const char* kVerdict = "host/verdict";

std::string rank_key(int rank) {
  return fmt::format("host/{}", rank);
}

// A rank of the group and its arguments.
struct JoinContext {
  c10d::Store& store;
  const std::string& run;
  int rank;
  size_t bytes;
  const std::vector<int>& global_ranks;

  int global_rank(int of) const {
    return global_ranks.empty() ? of : global_ranks[static_cast<size_t>(of)];
  }
};

std::string get(const JoinContext& join, const std::string& key, int from) {
  return get_text_from(join.store, key, join.global_rank(join.rank), join.global_rank(from))
      .substr(0, kMaxTextBytes);
}

// Rank 0 creates the segment, asks the other ranks whether they could open it, and tells the
// result.
NodeSegment lead(const JoinContext& join, int size) {
  NodeSegment node;
  std::string ticket;
  try {
    node.segment = SharedSegment::create(join.bytes, join.run);
    ticket = node.segment->ticket();
  } catch (const Error& error) {
    node.failure_reason = error.what();
  }
  set_text(join.store, kTicket, ticket);
  for (int peer = 1; peer < size; ++peer) {
    const std::string answer = get(join, rank_key(peer), peer);
    if (answer != kOk && node.failure_reason.empty())
      node.failure_reason = fmt::format("rank {}: {}", join.global_rank(peer), answer);
  }
  set_text(join.store, kVerdict, node.failure_reason.empty() ? kOk : node.failure_reason);
  if (node.segment) node.segment->close();
  return node;
}

// Returns rank 0's verdict. If rank 0 is gone by now, returns this rank's own failure, which
// explains more.
std::string read_verdict(const JoinContext& join, const std::string& answer) {
  try {
    return get(join, kVerdict, 0);
  } catch (const Error&) {
    if (answer == kOk) throw;
    return fmt::format("rank {}: {}", join.global_rank(join.rank), answer);
  }
}

NodeSegment follow(const JoinContext& join) {
  NodeSegment node;
  const std::string ticket = get(join, kTicket, 0);
  std::string answer = kOk;
  try {
    if (ticket.empty()) throw Error("rank {} has no shared memory", join.global_rank(0));
    node.segment = SharedSegment::open(ticket, join.bytes, join.run);
    node.segment->close();
  } catch (const Error& error) {
    answer = error.what();
  }
  set_text(join.store, rank_key(join.rank), answer);
  const std::string verdict = read_verdict(join, answer);
  if (verdict != kOk) {
    node.failure_reason = verdict;
  } else if (!node.segment) {
    throw Error("rank {}: cannot open the memory that the other ranks share: {}",
                join.global_rank(join.rank), answer);
  }
  return node;
}

}  // namespace

NodeSegment join_node_segment(c10d::Store& store, const std::string& run, int rank, int size,
                              size_t bytes, const std::vector<int>& global_ranks) {
  const JoinContext join{store, run, rank, bytes, global_ranks};
  NodeSegment node = rank == 0 ? lead(join, size) : follow(join);
  if (!node.failure_reason.empty()) node.segment = nullptr;
  return node;
}

}  // namespace zeroth::comm
