import { describe, expect, test } from 'vitest'
import { crashPlaces, crashPointName } from '../../src/testing/crash-places.ts'
import { cellName } from './cell.ts'
import { faultNames } from './faults.ts'
import { allCells, someCells } from './matrix.ts'

test('every place of the registry is crossed with every fault, in a hundred and fifty cells and more', () => {
  const cells = new Set(allCells.map(cellName))
  for (const place of crashPlaces) for (const fault of faultNames) expect(cells).toContain(`${crashPointName(place)} × ${fault}`)
  expect(cells.size).toBe(crashPlaces.length * faultNames.length)
  expect(cells.size).toBeGreaterThanOrEqual(150)
})

test('no two places have one name', () => {
  expect(new Set(crashPlaces.map(crashPointName)).size).toBe(crashPlaces.length)
})

describe('the part of the matrix that is played more often', () => {
  test.each([1, 2, 3])('has every place and every fault in it (seed %i)', (seed) => {
    const cells = someCells(seed)
    expect(new Set(cells.map(({ place }) => place))).toEqual(new Set(crashPlaces))
    expect(new Set(cells.map(({ fault }) => fault))).toEqual(new Set(faultNames))
  })
})
