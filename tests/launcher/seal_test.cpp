#include "launcher/cluster/seal.h"

#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "base/error.h"

namespace zeroth::launcher {
namespace {

struct Pair {
  Seals launcher;
  Seals agent;
};

Pair shake_hands(const HmacKey& secret) {
  const LauncherHandshake launcher(secret);
  const AgentHandshake agent(secret, launcher.greeting());
  auto accepted = launcher.accept(agent.answer());
  REQUIRE(accepted);
  auto seals = agent.accept(accepted->proof);
  REQUIRE(seals);
  return {std::move(accepted->seals), std::move(*seals)};
}

std::vector<std::string> open(Opener& opener, std::string_view bytes) {
  std::vector<std::string> payloads;
  opener.feed(bytes, [&](std::string_view payload) { payloads.emplace_back(payload); });
  return payloads;
}

using Payloads = std::vector<std::string>;

}  // namespace

TEST_CASE("who knows the secret is accepted on both sides, and frames arrive as they were sent") {
  const HmacKey secret(make_secret());
  Pair pair = shake_hands(secret);
  const std::string bytes("\0\xff\n", 3);
  std::string sent = pair.agent.sealer.seal("hello");
  sent += pair.agent.sealer.seal("");
  CHECK(open(pair.launcher.opener, sent) == Payloads{"hello", ""});
  CHECK(open(pair.agent.opener, pair.launcher.sealer.seal(bytes)) == Payloads{bytes});
}

TEST_CASE("frames may come in any pieces") {
  Pair pair = shake_hands(HmacKey("secret"));
  std::string stream;
  for (const char* text : {"one", "two", "three"}) stream += pair.agent.sealer.seal(text);
  Payloads all;
  for (const char byte : stream)
    for (std::string& payload : open(pair.launcher.opener, {&byte, 1}))
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
  CHECK_THROWS_AS(open(two.launcher.opener, one.agent.sealer.seal("end")), Error);
}

TEST_CASE("what a side has sent cannot be played back to it") {
  const HmacKey secret("secret");
  const LauncherHandshake launcher(secret);
  const AgentHandshake agent(secret, launcher.greeting());
  CHECK_FALSE(agent.accept(agent.answer().substr(kNonceBytes)));
  Pair pair = shake_hands(secret);
  CHECK_THROWS_AS(open(pair.agent.opener, pair.agent.sealer.seal("end")), Error);
}

TEST_CASE("a frame that is repeated, left out, moved or changed is an error") {
  const auto refuses = [](const auto& disturbed) {
    Pair pair = shake_hands(HmacKey("secret"));
    const std::string one = pair.agent.sealer.seal("one"), two = pair.agent.sealer.seal("two");
    CHECK_THROWS_AS(open(pair.launcher.opener, disturbed(one, two)), Error);
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
  CHECK_THROWS_WITH_AS(open(pair.launcher.opener, "\xff\xff\xff\xff"),
                       "a message of 4294967295 bytes, where 8388608 are the most", Error);
  const std::string most(kMaxPayloadBytes, 'x');
  Pair other = shake_hands(HmacKey("secret"));
  CHECK(open(other.launcher.opener, other.agent.sealer.seal(most)) == Payloads{most});
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
  const Round one{"00ff", 1};
  CHECK(derive_rank_secret(HmacKey(secret), one) == derive_rank_secret(HmacKey(secret), one));
  CHECK(derive_rank_secret(HmacKey(secret), one) !=
        derive_rank_secret(HmacKey(secret), {"00ff", 2}));
  CHECK(derive_rank_secret(HmacKey(secret), {}) != secret);
}

}  // namespace zeroth::launcher
