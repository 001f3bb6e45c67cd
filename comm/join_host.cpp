#include "comm/join_host.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <vector>

#include "base/error.h"
#include "comm/call.h"

namespace zeroth::comm {
namespace {

constexpr size_t kLongestText = 1000;  // a stranger's may be as long as he likes
constexpr const char* kOk = "ok";
constexpr const char* kTicket = "host/ticket";
constexpr const char* kVerdict = "host/verdict";

std::string key_of(int rank) {
  return fmt::format("host/{}", rank);
}

// A rank of the group and what it knows.
struct Joining {
  c10d::Store& store;
  const std::string& run;
  int rank;
  size_t bytes;
  const std::vector<int>& numbers;

  int number(int of) const { return numbers.empty() ? of : numbers[static_cast<size_t>(of)]; }
};

std::string get(const Joining& join, const std::string& key, int from) {
  try {
    const std::vector<uint8_t> value = join.store.get(key);
    return std::string(value.begin(), value.end()).substr(0, kLongestText);
  } catch (const std::exception& cause) {
    throw Error("rank {}: rank {} did not connect: {}", join.number(join.rank), join.number(from),
                words_of(cause));
  }
}

void set(c10d::Store& store, const std::string& key, const std::string& value) {
  store.set(key, std::vector<uint8_t>(value.begin(), value.end()));
}

// Rank 0 creates, asks the others whether they could open, and tells all.
HostSegment invite(const Joining& join, int size) {
  HostSegment host;
  std::string ticket;
  try {
    host.segment = SharedSegment::create(join.bytes, join.run);
    ticket = host.segment->ticket();
  } catch (const Error& error) {
    host.why_not = error.what();
  }
  set(join.store, kTicket, ticket);
  for (int peer = 1; peer < size; ++peer) {
    const std::string answer = get(join, key_of(peer), peer);
    if (answer != kOk && host.why_not.empty())
      host.why_not = fmt::format("rank {}: {}", join.number(peer), answer);
  }
  set(join.store, kVerdict, host.why_not.empty() ? kOk : host.why_not);
  if (host.segment) host.segment->close();
  return host;
}

// What this rank has found itself says more than that rank 0, told of it, is gone by now.
std::string verdict_of(const Joining& join, const std::string& answer) {
  try {
    return get(join, kVerdict, 0);
  } catch (const Error&) {
    if (answer == kOk) throw;
    return fmt::format("rank {}: {}", join.number(join.rank), answer);
  }
}

HostSegment follow(const Joining& join) {
  HostSegment host;
  const std::string ticket = get(join, kTicket, 0);
  std::string answer = kOk;
  try {
    if (ticket.empty()) throw Error("rank {} has none", join.number(0));
    host.segment = SharedSegment::open(ticket, join.bytes, join.run);
    host.segment->close();
  } catch (const Error& error) {
    answer = error.what();
  }
  set(join.store, key_of(join.rank), answer);
  const std::string verdict = verdict_of(join, answer);
  if (verdict != kOk) {
    host.why_not = verdict;
  } else if (!host.segment) {
    throw Error("rank {}: the others share memory that it could not open: {}",
                join.number(join.rank), answer);
  }
  return host;
}

}  // namespace

HostSegment join_host(c10d::Store& store, const std::string& run, int rank, int size, size_t bytes,
                      const std::vector<int>& numbers) {
  const Joining join{store, run, rank, bytes, numbers};
  HostSegment host = rank == 0 ? invite(join, size) : follow(join);
  if (!host.why_not.empty()) host.segment = nullptr;
  return host;
}

}  // namespace zeroth::comm
