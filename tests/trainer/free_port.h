// A TCP port of the loopback that nobody listens on.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace zeroth::trainer {

inline int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool found = ::bind(fd, generic, size) == 0 && ::getsockname(fd, generic, &size) == 0;
  ::close(fd);
  if (!found) throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

}  // namespace zeroth::trainer
