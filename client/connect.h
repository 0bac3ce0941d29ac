// Finding the daemon's socket.
#pragma once

#include <string>

#include "client/process.h"
#include "client/status.h"

namespace headrace::client {

// A path, or "@name" for a name in Linux's abstract namespace. INVALID_ARGUMENT when empty or too
// long for a socket address.
Status CheckAddress(const std::string& address);
inline bool IsAbstract(const std::string& address) { return !address.empty() && address[0] == '@'; }

// One try, never blocks. Checks that the peer is one we may trust (our own uid, root, or the owner
// of the socket's folder; for an abstract name, which has no permissions, our own uid or root):
// PERMISSION_DENIED otherwise. UNAVAILABLE: nobody listens, or the backlog is full.
Status Connect(const std::string& address, Descriptor* socket);

// Binds and listens. ALREADY_EXISTS's place is taken by `*taken`: somebody else has the name.
Status BindAbstract(const std::string& address, Descriptor* listener, bool* taken);

}  // namespace headrace::client
