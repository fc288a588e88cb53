//! Extended attributes: name and value encrypted, bound to the file.
