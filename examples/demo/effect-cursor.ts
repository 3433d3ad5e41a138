/**
 * How far a table with numbers from a sequence was read. A number that is missing belongs to a transaction that is still open or
 * was rolled back: what follows it is read again until it comes, or until no transaction that has it can be open any more.
 */

/** No transaction of the catalog lives as long: statements end after 30 s. */
const missingForMs = 60_000

export class EffectCursor {
  /** Everything up to this number was entered or will never come. */
  position = 0
  /** Numbers beyond the position, with the moment at which they were entered. */
  readonly #beyond = new Map<number, number>()

  /** Takes numbers in rising order per look. Returns false for one that was entered before. */
  enter(number: number, nowMs: number): boolean {
    if (number <= this.position || this.#beyond.has(number)) return false
    this.#beyond.set(number, nowMs)
    this.#advance(nowMs)
    return true
  }

  #advance(nowMs: number): void {
    while (this.#beyond.delete(this.position + 1)) this.position += 1
    for (const [number, enteredAtMs] of this.#beyond) {
      if (nowMs - enteredAtMs < missingForMs) return
      this.position = Math.max(this.position, number)
      this.#beyond.delete(number)
    }
  }
}
