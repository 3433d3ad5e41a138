/**
 * Makes something once for each object it is made of: what a component derives from its settings, and would else derive with each call.
 */
export function oncePer<Key extends object, Value>(make: (key: Key) => Value): (key: Key) => Value {
  const made = new WeakMap<Key, Value>()
  return (key) => {
    const before = made.get(key)
    if (before !== undefined) return before
    const value = make(key)
    made.set(key, value)
    return value
  }
}
