// A TCP port of the loopback that nobody listens on, below those that connections take at random:
// tests beside this one make many.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>

namespace zeroth::trainer {

inline int free_port() {
  constexpr int kFirst = 12'000, kPorts = 10'000, kTries = 100;
  static int next = ::getpid() * 37;  // programs at the same time begin at different ones
  for (int tries = 0; tries < kTries; ++tries) {
    const int port = kFirst + next++ % kPorts;
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool is_free = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    ::close(fd);
    if (is_free) return port;
  }
  throw std::runtime_error("no free port");
}

}  // namespace zeroth::trainer
