#include "launcher/transport/authenticated_frames.h"

#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "base/error.h"

namespace zeroth::launcher::authenticated_frames_test {
namespace {

struct Pair {
  MacPair launcher;
  MacPair agent;
};

Pair shake_hands(const HmacKey& secret) {
  const LauncherHandshake launcher(secret);
  const AgentHandshake agent(secret, launcher.greeting());
  auto accepted = launcher.accept(agent.answer());
  REQUIRE(accepted);
  auto macs = agent.accept(accepted->proof);
  REQUIRE(macs);
  return {std::move(accepted->macs), std::move(*macs)};
}

std::vector<std::string> open(MacReader& reader, std::string_view bytes) {
  std::vector<std::string> payloads;
  reader.feed(bytes, [&](std::string_view payload) { payloads.emplace_back(payload); });
  return payloads;
}

using Payloads = std::vector<std::string>;

}  // namespace

TEST_CASE("who knows the secret is accepted on both sides, and frames arrive as they were sent") {
  const HmacKey secret(make_secret());
  Pair pair = shake_hands(secret);
  const std::string bytes("\0\xff\n", 3);
  std::string sent = pair.agent.writer.make_frame("hello");
  sent += pair.agent.writer.make_frame("");
  CHECK(open(pair.launcher.reader, sent) == Payloads{"hello", ""});
  CHECK(open(pair.agent.reader, pair.launcher.writer.make_frame(bytes)) == Payloads{bytes});
}

TEST_CASE("frames may come in any pieces") {
  Pair pair = shake_hands(HmacKey("secret"));
  std::string stream;
  for (const char* text : {"one", "two", "three"}) stream += pair.agent.writer.make_frame(text);
  Payloads all;
  for (const char byte : stream)
    for (std::string& payload : open(pair.launcher.reader, {&byte, 1}))
      all.push_back(std::move(payload));
  CHECK(all == Payloads{"one", "two", "three"});
}

TEST_CASE("a side with another secret is refused by the other") {
  const HmacKey secret(make_secret()), other(make_secret());
  const LauncherHandshake launcher(secret);
  CHECK_FALSE(launcher.accept(AgentHandshake(other, launcher.greeting()).answer()));
  const AgentHandshake agent(secret, launcher.greeting());
  const LauncherHandshake impostor(other);
  CHECK_FALSE(agent.accept(std::string(kProofBytes, '\0')));
  CHECK_FALSE(
      agent.accept(impostor.accept(AgentHandshake(other, impostor.greeting()).answer())->proof));
}

TEST_CASE("an answer, a proof and frames of one connection are refused in another") {
  const HmacKey secret("secret");
  const LauncherHandshake first(secret), second(secret);
  const AgentHandshake agent(secret, first.greeting());
  CHECK_FALSE(second.accept(agent.answer()));
  const AgentHandshake other(secret, first.greeting());
  CHECK_FALSE(other.accept(first.accept(agent.answer())->proof));
  Pair one = shake_hands(secret), two = shake_hands(secret);
  CHECK_THROWS_AS(open(two.launcher.reader, one.agent.writer.make_frame("end")), Error);
}

TEST_CASE("what a side has sent cannot be played back to it") {
  const HmacKey secret("secret");
  const LauncherHandshake launcher(secret);
  const AgentHandshake agent(secret, launcher.greeting());
  CHECK_FALSE(agent.accept(agent.answer().substr(kNonceBytes)));
  Pair pair = shake_hands(secret);
  CHECK_THROWS_AS(open(pair.agent.reader, pair.agent.writer.make_frame("end")), Error);
}

TEST_CASE("a frame that is repeated, left out, moved or changed is an error") {
  const auto refuses = [](const auto& disturbed) {
    Pair pair = shake_hands(HmacKey("secret"));
    const std::string one = pair.agent.writer.make_frame("one"),
                      two = pair.agent.writer.make_frame("two");
    CHECK_THROWS_AS(open(pair.launcher.reader, disturbed(one, two)), Error);
  };
  using Frame = const std::string&;
  refuses([](Frame one, Frame) { return one + one; });
  refuses([](Frame, Frame two) { return two; });
  refuses([](Frame one, Frame two) { return two + one; });
  refuses([](Frame one, Frame two) { return one + '\1' + two; });
  for (size_t at = 4; at < 4 + 3 + kProofBytes; ++at)
    refuses([at](Frame one, Frame) {
      std::string changed = one;
      changed[at] = static_cast<char>(changed[at] ^ 1);
      return changed;
    });
}

TEST_CASE("a length beyond the most is refused before anything of it is held") {
  Pair pair = shake_hands(HmacKey("secret"));
  CHECK_THROWS_WITH_AS(open(pair.launcher.reader, "\xff\xff\xff\xff"),
                       "message of 4294967295 bytes exceeds the maximum of 8388608", Error);
  const std::string longest(kMaxPayloadBytes, 'x');
  Pair other = shake_hands(HmacKey("secret"));
  CHECK(open(other.launcher.reader, other.agent.writer.make_frame(longest)) == Payloads{longest});
}

TEST_CASE("garbage is never accepted") {
  std::mt19937 random(3);
  const HmacKey secret("secret");
  for (int trial = 0; trial < 200; ++trial) {
    std::string bytes(kGreetingBytes, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    CHECK_THROWS_AS(AgentHandshake(secret, bytes), Error);
    bytes.resize(kAnswerBytes, 'x');
    CHECK_FALSE(LauncherHandshake(secret).accept(bytes));
  }
  CHECK_THROWS_AS(AgentHandshake(secret, ""), Error);
}

TEST_CASE("secrets are new each time, and ranks get one that does not tell it") {
  const std::string secret = make_secret();
  CHECK(secret.size() == 64);
  CHECK(secret != make_secret());
  const RestartAttempt one{"00ff", 1};
  CHECK(derive_rank_secret(HmacKey(secret), one) == derive_rank_secret(HmacKey(secret), one));
  CHECK(derive_rank_secret(HmacKey(secret), one) !=
        derive_rank_secret(HmacKey(secret), {"00ff", 2}));
  CHECK(derive_rank_secret(HmacKey(secret), {}) != secret);
}

}  // namespace zeroth::launcher::authenticated_frames_test
