// The agent's connection to the launcher.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "launcher/transport/channel.h"

namespace zeroth::launcher {

// Connects to a launcher that knows the secret. `endpoints` are as in Listener::endpoints(); names
// may replace addresses. Tries them one after the other, repeatedly. Blocks; runs `io`, in which
// nothing else may wait. Throws Error after `limit` (of the steady clock) with the last error of
// each endpoint. A long wait is reported to `log` (base/machine/slow_wait.h).
std::shared_ptr<Channel> connect_to_launcher(
    boost::asio::io_context& io, const std::string& endpoints, const HmacKey& secret,
    std::chrono::milliseconds limit, const std::function<void(const std::string&)>& log = {});

}  // namespace zeroth::launcher
