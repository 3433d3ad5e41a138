/**
 * What was done to the system and what became of it, newest last; the page shows it and marks the moments in its chart.
 */
export interface Happening {
  /** Counts up, so that nobody shows it twice. */
  readonly number: number
  readonly atMs: number
  readonly kind: 'fault' | 'recovery' | 'note'
  readonly text: string
}

const keptHappenings = 200

export class Timeline {
  readonly happenings: Happening[] = []
  readonly #onHappening: (happening: Happening) => void
  #count = 0

  constructor(onHappening: (happening: Happening) => void) {
    this.#onHappening = onHappening
  }

  /** When something of this kind happened last; 0 if nothing did. */
  lastOf(kind: Happening['kind']): number {
    return this.happenings.findLast((happening) => happening.kind === kind)?.atMs ?? 0
  }

  add(kind: Happening['kind'], text: string): void {
    const happening = { number: (this.#count += 1), atMs: Date.now(), kind, text }
    this.happenings.push(happening)
    if (this.happenings.length > keptHappenings) this.happenings.shift()
    this.#onHappening(happening)
  }
}
