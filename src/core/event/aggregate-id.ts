/**
 * What the id of an aggregate may be: text that is the same in Postgres and at every broker, as an attribute and as a key.
 *
 * One rule for all who take one. What only some of them refused would be locked under a name that no event can have.
 */

/** The narrowest limit of the brokers we know; it fits an index too. */
const longestIdBytes = 1_024

/** What is wrong with an id, to be said behind its name; undefined if nothing is. */
export function aggregateIdFault(id: unknown): string | undefined {
  if (typeof id !== 'string' || id === '' || id.includes('\u0000')) {
    const got = typeof id === 'string' ? JSON.stringify(id.slice(0, 60)) : typeof id
    return `must be non-empty text, got ${got}`
  }
  // Half a surrogate pair has no bytes of its own: different aggregates would become one.
  if (!id.isWellFormed()) return 'is not well-formed Unicode text'
  if (Buffer.byteLength(id) > longestIdBytes) return `has more than ${longestIdBytes} bytes; use its hash`
  return undefined
}
