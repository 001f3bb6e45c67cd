#include "comm/share_segment.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/agreement.h"

namespace zeroth::comm {
namespace {

// What an Error says of a step that every rank takes; "" where it went well.
template <typename Step>
std::string complaint_of(Step&& step) {
  try {
    step();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

void throw_first(Group& group, const Partition& partition, const std::string& own) {
  const auto complaints = gather_texts(own, "whether memory is shared", group);
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::string& why = complaints[static_cast<size_t>(rank)];
    if (!why.empty())
      throw Error("the ranks of '{}' cannot share memory: rank {}: {}", partition.name, rank, why);
  }
}

}  // namespace

std::shared_ptr<SharedSegment> share_segment(Group& group, const Partition& partition, size_t bytes,
                                             const std::string& run) {
  const std::vector<int>& part = partition.part_of(group.rank());
  const bool alone = part.size() == 1, first = part.front() == group.rank();
  std::shared_ptr<SharedSegment> segment;
  std::string own;
  std::string why_not = complaint_of([&] {
    if (!first || alone) return;
    segment = SharedSegment::create(bytes, run);
    own = segment->ticket();
  });
  const auto tickets = gather_texts(own, "memory to share", group);
  throw_first(group, partition, why_not);
  why_not = complaint_of([&] {
    if (!first)
      segment = SharedSegment::open(tickets[static_cast<size_t>(part.front())], bytes, run);
  });
  throw_first(group, partition, why_not);
  if (segment) segment->close();
  return segment;
}

std::shared_ptr<RankTable> share_table(Group& group, const Partition& partition,
                                       const std::string& run) {
  const Place place = place_in(partition, group.rank());
  auto segment = share_segment(group, partition, RankTable::bytes(place.size), run);
  if (!segment) return nullptr;
  return std::make_shared<RankTable>(std::move(segment), place.rank, place.size, place.members);
}

}  // namespace zeroth::comm
