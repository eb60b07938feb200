"""Side by side with peers on one machine (``run``), and single parts under the magnifying glass (``micro``)."""
