// The agent's way to the launcher.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "launcher/cluster/channel.h"

namespace zeroth::launcher {

// `endpoints`: as Listener::endpoints() gives them; names may stand for addresses. Tries one after
// the other, and all again, until a launcher answers that knows the secret. Blocks; runs `io`, in
// which nothing else may wait. Throws Error after `limit` (seconds of the steady clock) with what
// each endpoint said last; a wait that lasts it tells `say` (base/slow_wait.h).
std::shared_ptr<Channel> connect_to_launcher(
    boost::asio::io_context& io, const std::string& endpoints, const HmacKey& secret,
    std::chrono::milliseconds limit, const std::function<void(const std::string&)>& log = {});

}  // namespace zeroth::launcher
