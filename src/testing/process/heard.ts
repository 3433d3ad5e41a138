/**
 * Everything that was said so far, and whoever still waits for something.
 *
 * Nothing is missed by asking late, and nobody waits for ever: closing fails all who wait and all who ask later for
 * something that was not said.
 */
interface Waiting<T> {
  readonly fits: (said: T) => boolean
  readonly resolve: (said: T) => void
  readonly reject: (reason: Error) => void
}

export class Heard<T> {
  readonly #said: T[] = []
  #waiting: Waiting<T>[] = []
  #end: Error | undefined

  add(said: T): void {
    this.#said.push(said)
    const served = this.#waiting.filter((each) => each.fits(said))
    this.#waiting = this.#waiting.filter((each) => !served.includes(each))
    for (const each of served) each.resolve(said)
  }

  /** Resolves with the first thing said that fits, past ones included. */
  first(fits: (said: T) => boolean): Promise<T> {
    const index = this.#said.findIndex(fits)
    if (index !== -1) return Promise.resolve(this.#said[index] as T)
    if (this.#end !== undefined) return Promise.reject(this.#end)
    return new Promise((resolve, reject) => this.#waiting.push({ fits, resolve, reject }))
  }

  close(end: Error): void {
    this.#end = end
    for (const each of this.#waiting) each.reject(end)
    this.#waiting = []
  }
}
