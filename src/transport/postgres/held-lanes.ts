/**
 * The lanes that one receiver of the Postgres transport holds: which, since which tenure, and how far each can be skipped.
 *
 * A lane beyond the receiver's fair share is drained: nothing new is taken from it, and once nothing of it is in hand it is
 * given back. A lane's floor lies below the first message that could be delivered: everything up to it is in hand or
 * rests, and nothing can appear there any more (see visibility-horizon.ts). Floors spare the scan a long line behind a resting key; they
 * are forgotten every second and whenever something comes back, so that nothing stays hidden below one. Where a scan without
 * them takes long they are kept longer, so that scanning stays a small part of the time.
 *
 * A renewal keeps the tenure, also if the lane was lost meanwhile, and with it what was in hand. So a tenure does not tell one hold
 * from the next: each has a `HeldLane` of its own, and what was fetched for one is of no use to the other.
 */
import type { LeasedLane } from './transport.sql.ts'

/** One hold of a lane, until it is lost. */
export interface HeldLane {
  readonly lane: number
  readonly tenure: string
  floor: string
  draining: boolean
}

const floorsLastMs = 1_000
const floorsLastScans = 20

export class LaneBook {
  #lanes = new Map<number, HeldLane>()
  #floorsSince = 0
  #longestScanMs = 0
  /** Counts how often floors were forgotten: a fetch that began before may not raise them again. */
  floorLife = 0

  get size(): number {
    return this.#lanes.size
  }

  /** Whether the first lane is among them, which every subscription has. */
  get hasFirst(): boolean {
    return this.#lanes.has(0)
  }

  /** The lanes to take messages from. */
  open(nowMs: number): readonly HeldLane[] {
    const lastMs = Math.max(floorsLastMs, floorsLastScans * this.#longestScanMs)
    if (nowMs - this.#floorsSince >= lastMs) this.forgetFloors(nowMs)
    return [...this.#lanes.values()].filter(({ draining }) => !draining)
  }

  has(lane: number, tenure: string): boolean {
    return this.#lanes.get(lane)?.tenure === tenure
  }

  /** Whether the lane was not lost since, not even for a moment. */
  holds(held: HeldLane): boolean {
    return this.#lanes.get(held.lane) === held
  }

  mayHand(held: HeldLane): boolean {
    return this.holds(held) && !held.draining
  }

  /** Takes over what the database says is ours, and drains what is beyond our share, idle lanes first. */
  update(leased: readonly LeasedLane[], uses: (lane: number) => boolean): void {
    const before = this.#lanes
    this.#lanes = new Map(
      leased.map(({ lane, tenure }) => {
        const known = before.get(lane)
        return [lane, known?.tenure === tenure ? known : { lane, tenure, floor: '0', draining: false }]
      }),
    )
    const excess = leased.length - (leased[0]?.share ?? 0)
    const byUse = [...this.#lanes.values()].toSorted((a, b) => Number(uses(a.lane)) - Number(uses(b.lane)))
    byUse.forEach((lane, index) => (lane.draining = index < excess))
  }

  /** The lanes that can be given back now. */
  leaving(uses: (lane: number) => boolean): readonly number[] {
    return [...this.#lanes.values()].filter(({ lane, draining }) => draining && !uses(lane)).map(({ lane }) => lane)
  }

  lose(lane: number): void {
    this.#lanes.delete(lane)
  }

  loseAll(): void {
    this.#lanes.clear()
  }

  /** Raises the floor of a lane that was looked at during this hold; in another one all of it is to be looked at. */
  raiseFloor(held: HeldLane, floor: string): void {
    if (this.holds(held)) held.floor = floor
  }

  /** Says how long a fetch took. */
  scanned(durationMs: number): void {
    this.#longestScanMs = Math.max(this.#longestScanMs, durationMs)
  }

  forgetFloors(nowMs: number): void {
    this.#floorsSince = nowMs
    this.#longestScanMs = 0
    this.floorLife += 1
    for (const lane of this.#lanes.values()) lane.floor = '0'
  }
}
