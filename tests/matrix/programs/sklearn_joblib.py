"""A forest on joblib's threads, k-means on OpenMP, and joblib's processes."""

import joblib
from counts import tell
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier


def square(number: int) -> int:
    """What the workers do."""
    return number * number


if __name__ == "__main__":
    digits = load_digits()
    forest = RandomForestClassifier(n_estimators=20, n_jobs=-1, random_state=1).fit(digits.data, digits.target)
    print(f"{forest.score(digits.data, digits.target):.4f}")
    print(f"{KMeans(n_clusters=5, n_init=1, random_state=1).fit(digits.data).inertia_:.0f}")
    workers = {}
    for backend in ("loky", "threading"):
        with joblib.parallel_config(backend), joblib.Parallel(n_jobs=-1) as parallel:
            print(sum(parallel(joblib.delayed(square)(number) for number in range(100))))
            workers[backend] = parallel._effective_n_jobs()
    tell({"joblib.cpu_count": joblib.cpu_count()}, workers)
