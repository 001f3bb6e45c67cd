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

std::string get(c10d::Store& store, const std::string& key, int rank, int from) {
  try {
    const std::vector<uint8_t> value = store.get(key);
    return std::string(value.begin(), value.end()).substr(0, kLongestText);
  } catch (const std::exception& cause) {
    throw Error("rank {}: rank {} did not connect: {}", rank, from, words_of(cause));
  }
}

void set(c10d::Store& store, const std::string& key, const std::string& value) {
  store.set(key, std::vector<uint8_t>(value.begin(), value.end()));
}

// Rank 0 creates, asks the others whether they could open, and tells all.
HostSegment invite(c10d::Store& store, const std::string& run, int size, size_t bytes) {
  HostSegment host;
  std::string ticket;
  try {
    host.segment = SharedSegment::create(bytes, run);
    ticket = host.segment->ticket();
  } catch (const Error& error) {
    host.why_not = error.what();
  }
  set(store, kTicket, ticket);
  for (int peer = 1; peer < size; ++peer) {
    const std::string answer = get(store, key_of(peer), 0, peer);
    if (answer != kOk && host.why_not.empty())
      host.why_not = fmt::format("rank {}: {}", peer, answer);
  }
  set(store, kVerdict, host.why_not.empty() ? kOk : host.why_not);
  if (host.segment) host.segment->close();
  return host;
}

// What this rank has found itself says more than that rank 0, told of it, is gone by now.
std::string verdict_of(c10d::Store& store, int rank, const std::string& answer) {
  try {
    return get(store, kVerdict, rank, 0);
  } catch (const Error&) {
    if (answer == kOk) throw;
    return fmt::format("rank {}: {}", rank, answer);
  }
}

HostSegment follow(c10d::Store& store, const std::string& run, int rank, size_t bytes) {
  HostSegment host;
  const std::string ticket = get(store, kTicket, rank, 0);
  std::string answer = kOk;
  try {
    if (ticket.empty()) throw Error("rank 0 has none");
    host.segment = SharedSegment::open(ticket, bytes, run);
    host.segment->close();
  } catch (const Error& error) {
    answer = error.what();
  }
  set(store, key_of(rank), answer);
  const std::string verdict = verdict_of(store, rank, answer);
  if (verdict != kOk) {
    host.why_not = verdict;
  } else if (!host.segment) {
    throw Error("rank {}: the others share memory that it could not open: {}", rank, answer);
  }
  return host;
}

}  // namespace

HostSegment join_host(c10d::Store& store, const std::string& run, int rank, int size,
                      size_t bytes) {
  HostSegment host = rank == 0 ? invite(store, run, size, bytes) : follow(store, run, rank, bytes);
  if (!host.why_not.empty()) host.segment = nullptr;
  return host;
}

}  // namespace zeroth::comm
