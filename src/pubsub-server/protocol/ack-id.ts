/**
 * Acknowledgement ids: a lease number as sixteen digits.
 *
 * Lease numbers start from the clock at each start, so an id from before a restart names no lease of this one.
 */
export const ackIdBytes = 16

/** Stands for an id that this server cannot have given out. */
export const noLease = -1

const half = 100_000_000

export function formatAckId(leaseId: number): string {
  return String(leaseId).padStart(ackIdBytes, '0')
}

export function writeAckId(target: Buffer, leaseId: number, position: number): number {
  const high = Math.floor(leaseId / half)
  writeDigits(target, leaseId - high * half, position + 8)
  writeDigits(target, high, position)
  return position + ackIdBytes
}

/** The lease number between two positions, or `noLease`. */
export function readAckId(bytes: Buffer, start: number, end: number): number {
  if (end - start !== ackIdBytes) return noLease
  let high = 0
  let low = 0
  for (let at = start; at < end; at += 1) {
    const digit = (bytes[at] as number) - 48
    if (digit < 0 || digit > 9) return noLease
    if (at < start + 8) high = high * 10 + digit
    else low = low * 10 + digit
  }
  return high * half + low
}

function writeDigits(target: Buffer, value: number, position: number): void {
  let rest = value | 0
  for (let at = position + 7; at >= position; at -= 1) {
    const tenth = (rest / 10) | 0
    target[at] = 48 + rest - tenth * 10
    rest = tenth
  }
}
