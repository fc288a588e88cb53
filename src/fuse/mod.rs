//! The mounted filesystem: decodes requests, delegates to `vault`, replies.
