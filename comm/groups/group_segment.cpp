#include "comm/groups/group_segment.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/cpu_collectives.h"

namespace zeroth::comm {
namespace {

// Returns the message of an Error in a step that every rank runs; "" if it succeeds.
template <typename Step>
std::string error_of(Step&& step) {
  try {
    step();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

void throw_first_error(Group& group, const Partition& partition, const std::string& own) {
  const auto errors = all_gather_strings(own, "whether memory is shared", group);
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::string& why = errors[static_cast<size_t>(rank)];
    if (!why.empty())
      throw Error("the ranks of '{}' cannot share memory: rank {}: {}", partition.name, rank, why);
  }
}

}  // namespace

std::shared_ptr<SharedSegment> make_group_segment(Group& group, const Partition& partition,
                                                  size_t bytes, const std::string& run) {
  const std::vector<int>& part = partition.part_of(group.rank());
  const bool is_single = part.size() == 1, first = part.front() == group.rank();
  std::shared_ptr<SharedSegment> segment;
  std::string own;
  std::string failure_reason = error_of([&] {
    if (!first || is_single) return;
    segment = SharedSegment::create(bytes, run);
    own = segment->ticket();
  });
  const auto tickets = all_gather_strings(own, "memory to share", group);
  throw_first_error(group, partition, failure_reason);
  failure_reason = error_of([&] {
    if (!first)
      segment = SharedSegment::open(tickets[static_cast<size_t>(part.front())], bytes, run);
  });
  throw_first_error(group, partition, failure_reason);
  if (segment) segment->close();
  return segment;
}

std::shared_ptr<RankTable> make_group_table(Group& group, const Partition& partition,
                                            const std::string& run) {
  const GroupMember member = group_member(partition, group.rank());
  auto segment = make_group_segment(group, partition, RankTable::bytes(member.size), run);
  if (!segment) return nullptr;
  return std::make_shared<RankTable>(std::move(segment), member.rank, member.size, member.members);
}

}  // namespace zeroth::comm
