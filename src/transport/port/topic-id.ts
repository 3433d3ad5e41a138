/**
 * Topics of one name are told apart by the broker's id: one that was deleted and made again is another, and so is that of another
 * cluster. An offset of the one means nothing in the other.
 */

/** Whether both are known and differ. Where a broker gives no id, nothing can be compared. */
export function isAnother(one: string | undefined, other: string | undefined): boolean {
  return one !== undefined && other !== undefined && one !== other
}
