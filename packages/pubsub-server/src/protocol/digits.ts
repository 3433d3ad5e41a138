/** Numbers as sixteen decimal digits, written and read without strings in between. */
export const digitBytes = 16

/** What `readDigits` returns for anything else. */
export const noNumber = -1

/** The two halves of eight digits that a number is written as. */
export const half = 100_000_000

export function formatDigits(value: number): string {
  return String(value).padStart(digitBytes, '0')
}

/** Writes `value` at `position` and returns the position behind it. */
export function writeDigits(target: Uint8Array, value: number, position: number): number {
  const high = Math.floor(value / half)
  writeHalf(target, high, position)
  writeHalf(target, value - high * half, position + 8)
  return position + digitBytes
}

/** Writes eight digits. */
export function writeHalf(target: Uint8Array, value: number, position: number): void {
  let rest = value | 0
  for (let at = position + 7; at >= position; at -= 1) {
    const tenth = (rest / 10) | 0
    target[at] = 48 + rest - tenth * 10
    rest = tenth
  }
}

export function readDigits(bytes: Uint8Array, start: number, end: number): number {
  if (end - start !== digitBytes) return noNumber
  const high = readHalf(bytes, start)
  const low = readHalf(bytes, start + 8)
  return high < 0 || low < 0 ? noNumber : high * half + low
}

function readHalf(bytes: Uint8Array, start: number): number {
  let value = 0
  for (let at = start; at < start + 8; at += 1) {
    const digit = (bytes[at] as number) - 48
    if (digit < 0 || digit > 9) return noNumber
    value = value * 10 + digit
  }
  return value
}
