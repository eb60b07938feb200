"""A simulated plant: devices that measure, drop off and come back, and a control room that counts what arrives."""
