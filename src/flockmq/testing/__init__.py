"""Tools for tests, public: a broker without sockets or clock, driven byte by byte from one seed."""
