// Motifs and anomalies as hits: each a window over the one that is nearest to it.

const plain = { score: null, chance: null, certificate: null, metadata: {} };

const repeated = ({ rank, count, records, notes, chance, members: [centre, nearest] }) => ({
  ...plain, ...centre, rank, chance, other: nearest?.window,
  metadata: { times: count, records: records.length, ...(notes.length ? { note: notes.join("; ") } : {}) },
});

const odd = one => ({
  ...plain, ...one, other: one.nearest.window,
  metadata: { distance: one.distance.toFixed(3), nearest: one.nearest.id, ...(one.notes.length ? { note: one.notes.join("; ") } : {}) },
});

export const surveyed = (kind, answer) => kind === "motifs" ? answer.motifs.map(repeated) : answer.anomalies.map(odd);
